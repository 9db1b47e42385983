// Answers of /v1/completions.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "services/gateway/core/answer.h"
#include "services/gateway/core/answer_parts.h"
#include "services/gateway/core/json_text.h"
#include "services/gateway/core/token_texts.h"

namespace foretoken::gateway {
namespace {

// The log-probabilities of one choice: {"tokens", "token_logprobs",
// "top_logprobs", "text_offset"}, four lists as JSON without their brackets.
struct Lists {
  explicit Lists(const Tokenizer* tokenizer) {
    if (tokenizer != nullptr) {
      detokenizer.emplace(*tokenizer, Detokenizer::Start::kBehindPrompt);
    }
  }

  std::string tokens, logprobs, tops, offsets;
  int64_t offset = 0;  // in characters, where the next token begins
  // A character of several tokens is where its last token adds it.
  std::optional<Detokenizer> detokenizer;

  void Add(const TokenTexts& texts, const SampledToken& token) {
    const char* comma = tokens.empty() ? "" : ",";
    const std::string spelled = texts.Spelled(token.token);
    tokens += comma;
    AppendJsonString(spelled, tokens);
    logprobs += comma;
    AppendLogprob(token.logprob, logprobs);
    absl::StrAppend(&tops, comma, "{");
    AddTop(texts, token);
    tops += '}';
    absl::StrAppend(&offsets, comma, offset);
    if (!detokenizer.has_value()) {
      offset += CountCharacters(spelled);
      return;
    }
    std::string text;
    detokenizer->Push(token.token, text).IgnoreError();
    offset += CountCharacters(text);
  }

  // An object's keys differ: of tokens with one spelling, the likeliest.
  void AddTop(const TokenTexts& texts, const SampledToken& token) {
    std::vector<std::string> keys;
    for (const auto& top : token.top_logprobs) {
      std::string key = texts.Spelled(top.token);
      if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
      if (!keys.empty()) tops += ',';
      AppendJsonString(key, tops);
      tops += ':';
      AppendLogprob(top.logprob, tops);
      keys.push_back(std::move(key));
    }
  }

  void Append(std::string& out) const {
    absl::StrAppend(&out, "{\"tokens\":[", tokens, "],\"token_logprobs\":[",
                    logprobs, "],\"top_logprobs\":[", tops,
                    "],\"text_offset\":[", offsets, "]}");
  }

  // Drops the lists; the next ones go on at the same offset.
  void Clear() {
    tokens.clear();
    logprobs.clear();
    tops.clear();
    offsets.clear();
  }
};

// One choice while it is written.
struct Choice {
  explicit Choice(const Tokenizer* tokenizer)
      : lists(tokenizer), pieces(tokenizer) {}

  std::string text;
  Lists lists;
  TokenPieces pieces;
  std::string tokens;  // of a body, as JSON
  bool begun = false;
};

// Parts that both forms share.
class CompletionAnswer : public Answer {
 protected:
  CompletionAnswer(const ApiRequest& request, AnswerOptions options)
      : request_(request),
        options_(std::move(options)),
        texts_(options_.tokenizer),
        results_(request) {
    for (int64_t i = 0; i < request.choices(); ++i) {
      choices_.emplace_back(options_.tokenizer);
    }
    head_ = "{\"id\":";
    AppendJsonString(options_.id, head_);
    absl::StrAppend(&head_, ",\"object\":\"text_completion\",\"created\":",
                    options_.created, ",\"model\":");
    AppendJsonString(options_.model, head_);
    head_ += ",\"choices\":[";
  }

  Choice& Of(int64_t choice) { return choices_[static_cast<size_t>(choice)]; }

  // The echo, once, before the first text.
  void Begin(int64_t choice) {
    if (std::exchange(Of(choice).begun, true) || !request_.echo) return;
    const std::string& echo =
        options_.echoes[static_cast<size_t>(choice / request_.n)];
    Of(choice).text += echo;
    Of(choice).lists.offset = CountCharacters(echo);
  }

  void Take(int64_t index, const GenerationDelta& delta) {
    Begin(index);
    Choice& choice = Of(index);
    choice.text += delta.text;
    if (request_.logprobs) {
      for (const SampledToken& token : delta.logprobs) {
        choice.lists.Add(texts_, token);
      }
    }
  }

  // `finish`: null, or its name in quotes.
  void AppendChoice(int64_t index, absl::string_view finish, std::string& out) {
    const Choice& choice = Of(index);
    absl::StrAppend(&out, "{\"index\":", index, ",\"text\":");
    AppendJsonString(choice.text, out);
    out += ",\"logprobs\":";
    if (request_.logprobs) {
      choice.lists.Append(out);
    } else {
      out += "null";
    }
    absl::StrAppend(&out, ",\"finish_reason\":", finish);
  }

  std::string Finished(int64_t choice) const {
    return absl::StrCat("\"", FinishName(results_.Of(choice).finish), "\"");
  }

  const ApiRequest& request_;
  const AnswerOptions options_;
  const TokenTexts texts_;
  Results results_;
  std::vector<Choice> choices_;
  std::string head_;  // up to the choices
};

class CompletionStream final : public CompletionAnswer {
 public:
  CompletionStream(const ApiRequest& request, AnswerOptions options)
      : CompletionAnswer(request, std::move(options)) {}

  void OnDelta(int64_t index, const GenerationDelta& delta,
               std::string& out) override {
    Take(index, delta);
    const Choice& choice = Of(index);
    std::string extension;
    AppendChunkExtension(request_, delta, texts_, Of(index).pieces, extension);
    if (!choice.text.empty() || !choice.lists.tokens.empty() ||
        !extension.empty()) {
      Send(index, "null", extension, out);
    }
  }
  void OnResult(int64_t index, const GenerationSummary& summary,
                std::string& out) override {
    Begin(index);
    results_.Set(index, summary);
    Send(index, Finished(index), DumpJson(ExtensionOf(summary)), out);
  }
  void Finish(const AnswerTimes& /*times*/, std::string& out) override {
    AppendStreamEnd(request_, head_, results_, out);
  }

 private:
  void Send(int64_t index, absl::string_view finish,
            absl::string_view extension, std::string& out) {
    Choice& choice = Of(index);
    absl::StrAppend(&out, "data: ", head_);
    AppendChoice(index, finish, out);
    out += "}]";
    if (request_.include_usage) out += ",\"usage\":null";
    if (!extension.empty()) {
      absl::StrAppend(&out, ",\"foretoken\":", extension);
    }
    out += "}\n\n";
    choice.text.clear();
    choice.lists.Clear();
  }
};

class CompletionBody final : public CompletionAnswer {
 public:
  CompletionBody(const ApiRequest& request, AnswerOptions options)
      : CompletionAnswer(request, std::move(options)) {}

  void OnDelta(int64_t index, const GenerationDelta& delta,
               std::string& /*out*/) override {
    Take(index, delta);
    if (!request_.want_tokens || delta.token_ids.empty()) return;
    Choice& choice = Of(index);
    if (!choice.tokens.empty()) choice.tokens += ',';
    choice.pieces.Append(delta, choice.tokens);
  }
  void OnResult(int64_t index, const GenerationSummary& summary,
                std::string& /*out*/) override {
    Begin(index);
    results_.Set(index, summary);
  }
  void Finish(const AnswerTimes& times, std::string& out) override {
    out += head_;
    for (int64_t i = 0; i < results_.size(); ++i) {
      if (i > 0) out += ',';
      AppendChoice(i, Finished(i), out);
      if (!Of(i).tokens.empty()) {
        absl::StrAppend(&out, ",\"foretoken\":{\"tokens\":[", Of(i).tokens,
                        "]}");
      }
      out += '}';
    }
    absl::StrAppend(&out, "],\"usage\":", DumpJson(results_.Usage()),
                    ",\"foretoken\":", DumpJson(results_.Extension(times)),
                    "}");
  }
};

}  // namespace

std::unique_ptr<Answer> MakeCompletionAnswer(const ApiRequest& request,
                                             AnswerOptions options) {
  if (request.stream) {
    return std::make_unique<CompletionStream>(request, std::move(options));
  }
  return std::make_unique<CompletionBody>(request, std::move(options));
}

}  // namespace foretoken::gateway
