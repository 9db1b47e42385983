// Answers of /v1/chat/completions.
#include <deque>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "services/gateway/core/answer.h"
#include "services/gateway/core/answer_parts.h"
#include "services/gateway/core/chat_output.h"
#include "services/gateway/core/json_text.h"
#include "services/gateway/core/token_texts.h"

namespace foretoken::gateway {
namespace {

// {"reasoning_content"}, or {"content", "tool_calls"}, of a chunk.
void AppendChunkDelta(const AnswerDelta& delta, std::string& out) {
  if (!delta.reasoning.empty()) {
    out += "{\"reasoning_content\":";
    AppendJsonString(delta.reasoning, out);
    out += '}';
    return;
  }
  out += '{';
  // An empty content is sent if there is nothing else, since clients read
  // choices[0].delta.content.
  if (!delta.content.empty() || delta.tool_calls.empty()) {
    out += "\"content\":";
    AppendJsonString(delta.content, out);
    if (!delta.tool_calls.empty()) out += ',';
  }
  for (size_t i = 0; i < delta.tool_calls.size(); ++i) {
    const ToolCallDelta& call = delta.tool_calls[i];
    absl::StrAppend(&out, i == 0 ? "\"tool_calls\":[" : ",",
                    "{\"index\":", call.index);
    // Id, type and name come once, with the first part of a call; later parts
    // carry arguments alone.
    if (!call.id.empty()) {
      out += ",\"id\":";
      AppendJsonString(call.id, out);
      out += ",\"type\":\"function\"";
    }
    out += ",\"function\":{";
    if (!call.name.empty()) {
      out += "\"name\":";
      AppendJsonString(call.name, out);
      out += ',';
    }
    out += "\"arguments\":";
    AppendJsonString(call.arguments, out);
    out += "}}";
  }
  if (!delta.tool_calls.empty()) out += ']';
  out += '}';
}

void AddReasoning(const ChatSplitter& splitter, Results& results) {
  if (splitter.thinks()) results.AddReasoning(splitter.reasoning_tokens());
}

class ChatStream final : public Answer {
 public:
  ChatStream(const ApiRequest& request, const AnswerOptions& options)
      : request_(request),
        texts_(options.tokenizer),
        results_(request),
        begun_(static_cast<size_t>(request.choices())) {
    // Built once: every chunk begins with it.
    absl::StrAppend(&head_, "{\"id\":");
    AppendJsonString(options.id, head_);
    absl::StrAppend(&head_,
                    ",\"object\":\"chat.completion.chunk\",\"created\":",
                    options.created, ",\"model\":");
    AppendJsonString(options.model, head_);
    head_ += ",\"choices\":[";
    // In deques or vectors of fixed size: splitters refer to the request and
    // cannot move.
    for (int64_t i = 0; i < request.choices(); ++i) {
      pieces_.emplace_back(options.tokenizer);
      splitters_.emplace_back(request, options, i);
    }
  }

  void OnDelta(int64_t choice, const GenerationDelta& delta,
               std::string& out) override {
    // The role comes in a chunk of its own, before any text.
    Begin(choice, out);
    const bool logprobs = request_.logprobs && !delta.logprobs.empty();
    std::string extension;
    const bool extended =
        AppendChunkExtension(request_, delta, texts_,
                             pieces_[static_cast<size_t>(choice)], extension);
    AnswerDelta split = SplitterOf(choice).Take(delta);
    // Tokens without text so far, such as the first bytes of a character:
    // nothing to send.
    if (split.empty() && !extended && !logprobs) return;
    ChunkReasoning(choice, split, out);
    BeginChunk(choice, split, out);
    if (logprobs) {
      out += "{\"content\":[";
      AppendTokenLogprobs(texts_, delta, out);
      out += "],\"refusal\":null}";
    } else {
      out += "null";
    }
    EndChunk(extension, out);
  }

  void OnResult(int64_t choice, const GenerationSummary& summary,
                std::string& out) override {
    Begin(choice, out);
    results_.Set(choice, summary);
    // What the splitter held back in case it became a tag or a call.
    AnswerDelta last = SplitterOf(choice).Finish();
    AddReasoning(SplitterOf(choice), results_);
    if (!last.empty()) {
      ChunkReasoning(choice, last, out);
      Chunk(choice, last, out);
    }
    // The finish reason comes alone, after all text.
    absl::StrAppend(&out, "data: ", head_, "{\"index\":", choice,
                    ",\"delta\":{},\"logprobs\":null,\"finish_reason\":\"",
                    FinishName(summary.finish, SplitterOf(choice)), "\"}]",
                    request_.include_usage ? ",\"usage\":null" : "",
                    ",\"foretoken\":", DumpJson(ExtensionOf(summary)), "}\n\n");
  }

  void Finish(const AnswerTimes& /*times*/, std::string& out) override {
    AppendStreamEnd(request_, head_, results_, out);
  }

 private:
  ChatSplitter& SplitterOf(int64_t choice) {
    return splitters_[static_cast<size_t>(choice)];
  }
  // A chunk up to its log-probabilities, and what follows them.
  void BeginChunk(int64_t choice, const AnswerDelta& delta,
                  std::string& out) const {
    absl::StrAppend(&out, "data: ", head_, "{\"index\":", choice,
                    ",\"delta\":");
    AppendChunkDelta(delta, out);
    out += ",\"logprobs\":";
  }
  void EndChunk(absl::string_view extension, std::string& out) const {
    out += ",\"finish_reason\":null}]";
    if (request_.include_usage) out += ",\"usage\":null";
    if (!extension.empty()) {
      absl::StrAppend(&out, ",\"foretoken\":", extension);
    }
    out += "}\n\n";
  }
  void Chunk(int64_t choice, const AnswerDelta& delta, std::string& out) const {
    BeginChunk(choice, delta, out);
    out += "null";
    EndChunk("", out);
  }
  // Sends reasoning in a chunk of its own, since clients look for reasoning or
  // content in a chunk, not for both. Leaves the rest in `delta`.
  void ChunkReasoning(int64_t choice, AnswerDelta& delta,
                      std::string& out) const {
    AnswerDelta reasoning;
    // The usual case: one of the two, and no further chunk.
    reasoning.reasoning = std::exchange(delta.reasoning, {});
    if (delta.empty()) {
      delta = std::move(reasoning);
    } else if (!reasoning.empty()) {
      Chunk(choice, reasoning, out);
    }
  }
  void Begin(int64_t choice, std::string& out) {
    const auto begun = begun_.begin() + choice;
    if (*begun) return;
    *begun = true;
    absl::StrAppend(&out, "data: ", head_, "{\"index\":", choice,
                    ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                    "\"logprobs\":null,\"finish_reason\":null}]",
                    request_.include_usage ? ",\"usage\":null" : "", "}\n\n");
  }

  const ApiRequest& request_;
  const TokenTexts texts_;
  std::string head_;  // of every chunk, up to its choices
  Results results_;
  std::vector<bool> begun_;
  std::vector<TokenPieces> pieces_;  // of each choice
  std::deque<ChatSplitter> splitters_;
};

class ChatBody final : public Answer {
 public:
  ChatBody(const ApiRequest& request, AnswerOptions options)
      : request_(request),
        options_(std::move(options)),
        texts_(options_.tokenizer),
        results_(request) {
    for (int64_t i = 0; i < request.choices(); ++i) {
      choices_.emplace_back(request, options_, i);
    }
  }

  void OnDelta(int64_t choice, const GenerationDelta& delta,
               std::string& /*out*/) override {
    Choice& kept = choices_[static_cast<size_t>(choice)];
    // Only strings grow; the body is put together once, at the end.
    kept.Add(kept.splitter.Take(delta));
    if (request_.logprobs && !delta.logprobs.empty()) {
      if (!kept.logprobs.empty()) kept.logprobs += ',';
      AppendTokenLogprobs(texts_, delta, kept.logprobs);
    }
    if (request_.want_tokens && !delta.token_ids.empty()) {
      if (!kept.tokens.empty()) kept.tokens += ',';
      kept.pieces.Append(delta, kept.tokens);
    }
  }

  void OnResult(int64_t choice, const GenerationSummary& summary,
                std::string& /*out*/) override {
    results_.Set(choice, summary);
    Choice& kept = choices_[static_cast<size_t>(choice)];
    kept.Add(kept.splitter.Finish());
    AddReasoning(kept.splitter, results_);
  }

  void Finish(const AnswerTimes& times, std::string& out) override {
    out += "{\"id\":";
    AppendJsonString(options_.id, out);
    absl::StrAppend(&out, ",\"object\":\"chat.completion\",\"created\":",
                    options_.created, ",\"model\":");
    AppendJsonString(options_.model, out);
    out += ",\"choices\":[";
    for (size_t i = 0; i < choices_.size(); ++i) {
      AppendChoice(static_cast<int64_t>(i), choices_[i], out);
    }
    absl::StrAppend(&out, "],\"usage\":", DumpJson(results_.Usage()),
                    ",\"foretoken\":", DumpJson(results_.Extension(times)),
                    "}");
  }

 private:
  struct Choice {
    Choice(const ApiRequest& request, const AnswerOptions& options,
           int64_t index)
        : splitter(request, options, index), pieces(options.tokenizer) {}

    void Add(const AnswerDelta& delta) {
      reasoning += delta.reasoning;
      text += delta.content;
      for (const ToolCallDelta& part : delta.tool_calls) {
        const auto index = static_cast<size_t>(part.index);
        // Parts of different calls may alternate.
        if (calls.size() <= index) calls.resize(index + 1);
        calls[index].id += part.id;
        calls[index].name += part.name;
        calls[index].arguments += part.arguments;
      }
    }

    ChatSplitter splitter;
    std::string reasoning;
    std::string text;
    std::vector<ToolCallDelta> calls;
    std::string logprobs;  // of its tokens, as JSON
    TokenPieces pieces;
    std::string tokens;  // as JSON
  };

  void AppendChoice(int64_t index, const Choice& choice,
                    std::string& out) const {
    absl::StrAppend(&out, index == 0 ? "" : ",", "{\"index\":", index,
                    ",\"message\":{\"role\":\"assistant\",\"content\":");
    // As OpenAI's API: null beside calls, a text otherwise.
    if (choice.text.empty() && !choice.calls.empty()) {
      out += "null";
    } else {
      AppendJsonString(choice.text, out);
    }
    if (!choice.reasoning.empty()) {
      out += ",\"reasoning_content\":";
      AppendJsonString(choice.reasoning, out);
    }
    for (size_t i = 0; i < choice.calls.size(); ++i) {
      const ToolCallDelta& call = choice.calls[i];
      absl::StrAppend(&out, i == 0 ? ",\"tool_calls\":[" : ",", "{\"id\":");
      AppendJsonString(call.id, out);
      out += ",\"type\":\"function\",\"function\":{\"name\":";
      AppendJsonString(call.name, out);
      out += ",\"arguments\":";
      AppendJsonString(call.arguments, out);
      out += "}}";
    }
    if (!choice.calls.empty()) out += ']';
    out += ",\"refusal\":null},\"logprobs\":";
    if (request_.logprobs) {
      absl::StrAppend(&out, "{\"content\":[", choice.logprobs,
                      "],\"refusal\":null}");
    } else {
      out += "null";
    }
    absl::StrAppend(&out, ",\"finish_reason\":\"",
                    FinishName(results_.Of(index).finish, choice.splitter),
                    "\"");
    if (!choice.tokens.empty()) {
      absl::StrAppend(&out, ",\"foretoken\":{\"tokens\":[", choice.tokens,
                      "]}");
    }
    out += '}';
  }

  const ApiRequest& request_;
  const AnswerOptions options_;
  const TokenTexts texts_;
  Results results_;
  std::deque<Choice> choices_;  // which cannot move
};

}  // namespace

std::unique_ptr<Answer> MakeChatAnswer(const ApiRequest& request,
                                       AnswerOptions options) {
  if (request.stream) return std::make_unique<ChatStream>(request, options);
  return std::make_unique<ChatBody>(request, std::move(options));
}

}  // namespace foretoken::gateway
