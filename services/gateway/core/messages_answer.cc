// Answers of /v1/messages.
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/json.h"
#include "services/gateway/core/answer.h"
#include "services/gateway/core/answer_parts.h"
#include "services/gateway/core/chat_output.h"
#include "services/gateway/core/cut_json.h"
#include "services/gateway/core/error_forms.h"
#include "services/gateway/core/json_text.h"
#include "services/gateway/core/token_texts.h"

namespace foretoken::gateway {
namespace {

// Clients send thinking back only if it has a signature. There is nothing to
// prove here: whatever comes back is taken.
constexpr char kSignature[] = "foretoken";

// A part of a message.
struct Block {
  enum class Type : uint8_t { kText, kThinking, kToolUse };
  Type type = Type::kText;
  std::string id, name;  // of a call
  std::string text;      // a call's arguments; bodies only

  const char* delta_type() const {
    switch (type) {
      case Type::kText:
        return "text_delta";
      case Type::kThinking:
        return "thinking_delta";
      case Type::kToolUse:
        break;
    }
    return "input_json_delta";
  }
  // The member with a delta's text.
  const char* delta_member() const {
    switch (type) {
      case Type::kText:
        return "text";
      case Type::kThinking:
        return "thinking";
      case Type::kToolUse:
        break;
    }
    return "partial_json";
  }
  // As it begins in a stream, or as a body has it.
  void AppendJson(bool begins, std::string& out) const {
    switch (type) {
      case Type::kText:
        out += R"({"type":"text","text":)";
        AppendJsonString(text, out);
        break;
      case Type::kThinking:
        out += R"({"type":"thinking","thinking":)";
        AppendJsonString(text, out);
        absl::StrAppend(&out, ",\"signature\":\"", begins ? "" : kSignature,
                        "\"");
        break;
      case Type::kToolUse:
        absl::StrAppend(&out, R"({"type":"tool_use","id":)", JsonString(id),
                        ",\"name\":", JsonString(name),
                        ",\"input\":", begins ? "{}" : WholeJsonObject(text));
        break;
    }
    out += '}';
  }
};

int64_t PromptTokens(const ApiRequest& request) {
  const auto* const tokens =
      request.prompts.empty()
          ? nullptr
          : std::get_if<std::vector<TokenId>>(&request.prompts.front());
  return tokens == nullptr ? 0 : static_cast<int64_t>(tokens->size());
}

// Both forms: the body is what the events of the stream add up to. A block is
// open until the next one begins.
class MessagesAnswer final : public Answer {
 public:
  MessagesAnswer(const ApiRequest& request, AnswerOptions options)
      : request_(request),
        options_(std::move(options)),
        prompt_tokens_(PromptTokens(request)),
        texts_(options_.tokenizer),
        results_(request),
        splitter_(request, options_, 0),
        pieces_(options_.tokenizer) {}

  void OnDelta(int64_t /*choice*/, const GenerationDelta& delta,
               std::string& out) override {
    Begin(out);
    if (request_.stream) {
      std::string extension;
      if (AppendChunkExtension(request_, delta, texts_, pieces_, extension)) {
        Event("foretoken_delta", absl::StrCat(",\"foretoken\":", extension),
              out);
      }
    } else if (request_.want_tokens && !delta.token_ids.empty()) {
      if (!tokens_.empty()) tokens_ += ',';
      pieces_.Append(delta, tokens_);
    }
    Add(splitter_.Take(delta), out);
  }

  void OnResult(int64_t choice, const GenerationSummary& summary,
                std::string& out) override {
    Begin(out);
    results_.Set(choice, summary);
    Add(splitter_.Finish(), out);
    CloseBlock(out);
  }

  void Finish(const AnswerTimes& times, std::string& out) override {
    const std::string extension = Extension(times);
    if (!request_.stream) {
      AppendMessage(extension, out);
      return;
    }
    Event("message_delta",
          absl::StrCat(",\"delta\":{", StopMembers(), "},\"usage\":", Usage(),
                       ",\"foretoken\":", extension),
          out);
    Event("message_stop", "", out);
  }

  void Fail(const ApiError& error, std::string& out) override {
    absl::StrAppend(
        &out, "event: error\ndata: ",
        ErrorBody(error, ErrorForm::kAnthropic, request_.generation.request_id),
        "\n\n");
  }

 private:
  // --- Events, of streams only -----------------------------------------------

  // `members`: after a comma.
  static void Event(absl::string_view type, absl::string_view members,
                    std::string& out) {
    absl::StrAppend(&out, "event: ", type, "\ndata: {\"type\":\"", type, "\"",
                    members, "}\n\n");
  }
  std::string Index() const {
    return absl::StrCat(",\"index\":", begun_blocks_ - 1);
  }
  void Delta(absl::string_view type, absl::string_view member,
             absl::string_view text, std::string& out) const {
    Event("content_block_delta",
          absl::StrCat(Index(), ",\"delta\":{\"type\":\"", type, "\",\"",
                       member, "\":", JsonString(text), "}"),
          out);
  }

  void Begin(std::string& out) {
    if (!request_.stream || std::exchange(begun_, true)) return;
    // How much of the prompt is cached is said at the end.
    std::string message = ",\"message\":";
    AppendHead(message);
    absl::StrAppend(&message,
                    R"(,"content":[],"stop_reason":null,"stop_sequence":null)",
                    ",\"usage\":", UsageOf(prompt_tokens_, 0, 0, ""), "}");
    Event("message_start", message, out);
    Event("ping", "", out);
  }

  // --- Blocks ----------------------------------------------------------------

  void Add(const AnswerDelta& delta, std::string& out) {
    AddText(Block::Type::kThinking, delta.reasoning, out);
    delta.InOrder(
        [&](absl::string_view text) { AddText(Block::Type::kText, text, out); },
        [&](const ToolCallDelta& part) { AddCall(part, out); });
  }
  void AddCall(const ToolCallDelta& part, std::string& out) {
    if (!part.id.empty()) {
      Block block;
      block.type = Block::Type::kToolUse;
      block.id = part.id;
      block.name = part.name;
      OpenBlock(std::move(block), out);
    }
    Append(part.arguments, out);
  }
  void AddText(Block::Type type, absl::string_view text, std::string& out) {
    if (text.empty()) return;
    if (!open_ || blocks_.back().type != type) {
      Block block;
      block.type = type;
      OpenBlock(std::move(block), out);
    }
    Append(text, out);
  }
  // To the open block.
  void Append(absl::string_view text, std::string& out) {
    if (text.empty()) return;
    Block& block = blocks_.back();
    if (request_.stream) {
      Delta(block.delta_type(), block.delta_member(), text, out);
    } else {
      absl::StrAppend(&block.text, text);
    }
  }

  void OpenBlock(Block block, std::string& out) {
    CloseBlock(out);
    open_ = true;
    ++begun_blocks_;
    if (request_.stream) blocks_.clear();  // nothing is repeated
    blocks_.push_back(std::move(block));
    if (!request_.stream) return;
    std::string members = absl::StrCat(Index(), ",\"content_block\":");
    blocks_.back().AppendJson(/*begins=*/true, members);
    Event("content_block_start", members, out);
  }
  void CloseBlock(std::string& out) {
    if (!std::exchange(open_, false) || !request_.stream) return;
    if (blocks_.back().type == Block::Type::kThinking) {
      Delta("signature_delta", "signature", kSignature, out);
    }
    Event("content_block_stop", Index(), out);
  }

  // --- The message -----------------------------------------------------------

  std::string StopMembers() const {
    const GenerationSummary& summary = results_.Of(0);
    const char* reason = "end_turn";
    std::string stop_string = "null";
    const bool cut_off = splitter_.cut_off();
    if (!summary.stop_string.empty() && (cut_off || splitter_.calls() == 0)) {
      // It may have cut a call off. Whole calls are to be answered.
      reason = "stop_sequence";
      stop_string = JsonString(summary.stop_string);
    } else if (summary.finish == FinishReason::kLength || cut_off) {
      reason = "max_tokens";
    } else if (splitter_.calls() > 0) {
      reason = "tool_use";
    }
    return absl::StrCat("\"stop_reason\":\"", reason,
                        "\",\"stop_sequence\":", stop_string);
  }

  // Anthropic counts the tokens of the cache apart from the other input.
  static std::string UsageOf(int64_t input, int64_t cached, int64_t output,
                             absl::string_view details) {
    return absl::StrCat("{\"input_tokens\":", input - cached,
                        ",\"cache_creation_input_tokens\":0",
                        ",\"cache_read_input_tokens\":", cached,
                        ",\"output_tokens\":", output, details, "}");
  }
  std::string Usage() const {
    const GenerationSummary& summary = results_.Of(0);
    return UsageOf(
        summary.prompt_tokens, summary.reused_tokens, summary.completion_tokens,
        splitter_.thinks()
            ? absl::StrCat(",\"output_tokens_details\":{\"thinking_tokens\":",
                           splitter_.reasoning_tokens(), "}")
            : "");
  }

  std::string Extension(const AnswerTimes& times) const {
    std::string extension = DumpJson(results_.Extension(times));
    if (tokens_.empty()) return extension;
    return absl::StrCat(absl::StripSuffix(extension, "}"), ",\"tokens\":[",
                        tokens_, "]}");
  }

  // Up to its content, with the brace open.
  void AppendHead(std::string& out) const {
    absl::StrAppend(&out, "{\"id\":", JsonString(options_.id),
                    R"(,"type":"message","role":"assistant","model":)",
                    JsonString(options_.model));
  }
  void AppendMessage(absl::string_view extension, std::string& out) const {
    AppendHead(out);
    out += ",\"content\":[";
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (i > 0) out += ',';
      blocks_[i].AppendJson(/*begins=*/false, out);
    }
    absl::StrAppend(&out, "],", StopMembers(), ",\"usage\":", Usage(),
                    ",\"foretoken\":", extension, "}");
  }

  const ApiRequest& request_;
  const AnswerOptions options_;
  const int64_t prompt_tokens_;
  const TokenTexts texts_;
  Results results_;
  ChatSplitter splitter_;
  TokenPieces pieces_;
  std::vector<Block> blocks_;  // of a stream, the last alone
  int64_t begun_blocks_ = 0;
  bool open_ = false;  // the last block
  bool begun_ = false;
  std::string tokens_;  // of a body, as JSON
};

}  // namespace

std::unique_ptr<Answer> MakeMessagesAnswer(const ApiRequest& request,
                                           AnswerOptions options) {
  return std::make_unique<MessagesAnswer>(request, std::move(options));
}

}  // namespace foretoken::gateway
