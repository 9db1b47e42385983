#include "services/gateway/core/chat_output.h"

#include <algorithm>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "services/gateway/core/json_text.h"

namespace foretoken::gateway {
namespace {

// {"token", "logprob", "bytes"} without its closing brace.
void AppendToken(const TokenTexts& texts, TokenId token, float logprob,
                 std::string& out) {
  const std::string text = texts.Of(token);
  out += "{\"token\":";
  AppendJsonString(text, out);
  out += ",\"logprob\":";
  AppendLogprob(logprob, out);
  out += ",\"bytes\":[";
  // As numbers, since a token may hold only part of a character.
  for (size_t i = 0; i < text.size(); ++i) {
    absl::StrAppend(&out, i == 0 ? "" : ",", static_cast<uint8_t>(text[i]));
  }
  out += ']';
}

}  // namespace

ChatSplitter::ChatSplitter(const ApiRequest& request,
                           const AnswerOptions& options, int64_t choice)
    : one_call_(request.one_call),
      thinks_(options.chat != nullptr && options.chat->thinking().has_value()),
      drops_reasoning_(request.reasoning == ReasoningPlace::kNowhere) {
  // A constrained answer to a prompt that has ended the thinking is all
  // content, also one that begins with the tag.
  const bool reads_thinking =
      thinks_ && (request.thinking != ThinkingStage::kOver ||
                  request.generation.constraint.empty());
  // Without tools and tags text needs no reading, and is passed on as it comes.
  if (!request.with_tools && !reads_thinking) return;
  ChatAnswerOptions reading;
  // The grammar allows calls only where the rules want them; a fence around one
  // is text then.
  if (!request.tool_rules.empty()) {
    reading.fences = ToolCallParser::Fences::kIgnored;
  }
  reading.reads_thinking = reads_thinking;
  reading.thinking = {
      .opened = request.thinking == ThinkingStage::kInside,
      .verbatim = request.reasoning == ReasoningPlace::kContent,
      .keeps_space = KeepsSpaceAfterThinking(request.generation.constraint)};
  // Ids of calls differ between answers and choices. Without tools the request
  // has no names of any.
  answer_.emplace(*options.chat, request.tool_names,
                  absl::HashOf(options.id, choice), reading);
}

AnswerDelta ChatSplitter::Take(const GenerationDelta& delta) {
  if (!answer_.has_value()) return {delta.text, {}, {}};
  return Kept(answer_->Take(delta.token_ids, delta.text));
}

AnswerDelta ChatSplitter::Finish() {
  return answer_.has_value() ? Kept(answer_->Finish()) : AnswerDelta();
}

AnswerDelta ChatSplitter::Kept(AnswerDelta delta) const {
  if (drops_reasoning_) delta.reasoning.clear();
  // The grammar cannot always stop a second call; parallel_tool_calls=false
  // promises that none is shown.
  if (one_call_) {
    std::vector<ToolCallDelta>& calls = delta.tool_calls;
    calls.erase(std::remove_if(calls.begin(), calls.end(),
                               [](const auto& call) { return call.index > 0; }),
                calls.end());
  }
  return delta;
}

void AppendTokenLogprob(const TokenTexts& texts, const SampledToken& token,
                        std::string& out) {
  AppendToken(texts, token.token, token.logprob, out);
  out += ",\"top_logprobs\":[";
  for (size_t k = 0; k < token.top_logprobs.size(); ++k) {
    if (k > 0) out += ',';
    AppendToken(texts, token.top_logprobs[k].token,
                token.top_logprobs[k].logprob, out);
    out += '}';
  }
  out += "]}";
}

void AppendTokenLogprobs(const TokenTexts& texts, const GenerationDelta& delta,
                         std::string& out) {
  for (size_t i = 0; i < delta.logprobs.size(); ++i) {
    if (i > 0) out += ',';
    AppendTokenLogprob(texts, delta.logprobs[i], out);
  }
}

}  // namespace foretoken::gateway
