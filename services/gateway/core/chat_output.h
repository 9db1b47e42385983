// The output of one answer to a conversation: its reasoning, content and tool
// calls, and the log-probabilities of its tokens.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_CHAT_OUTPUT_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_CHAT_OUTPUT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "common/generation/generation.h"
#include "common/text/chat/chat_answer.h"
#include "services/gateway/core/answer.h"
#include "services/gateway/core/api_request.h"
#include "services/gateway/core/token_texts.h"

namespace foretoken::gateway {

// Splits the output of one choice into reasoning, content and tool calls, and
// drops what the request does not want: the reasoning, or calls after the
// first. Owned by one thread.
class ChatSplitter {
 public:
  ChatSplitter(const ApiRequest& request, const AnswerOptions& options,
               int64_t choice);

  AnswerDelta Take(const GenerationDelta& delta);
  // The rest that was held back, at the end. Once.
  AnswerDelta Finish();
  // See ToolCallParser. Dropped calls cut nothing off.
  int calls() const { return answer_.has_value() ? answer_->calls() : 0; }
  bool cut_off() const {
    return answer_.has_value() && answer_->cut_off() &&
           !(one_call_ && answer_->whole_calls() > 0);
  }
  // Whether the model thinks, and with how many tokens of this answer so far,
  // counted from the first one; see ThinkingTokens.
  bool thinks() const { return thinks_; }
  int64_t reasoning_tokens() const {
    return answer_.has_value() ? answer_->thinking_tokens() : 0;
  }

 private:
  AnswerDelta Kept(AnswerDelta delta) const;

  const bool one_call_;
  const bool thinks_;
  const bool drops_reasoning_;
  std::optional<ChatAnswer> answer_;  // unset: all of it is content
};

// Appends {"token", "logprob", "bytes", "top_logprobs"} of a token.
void AppendTokenLogprob(const TokenTexts& texts, const SampledToken& token,
                        std::string& out);
// The same of each of the delta's tokens, joined by commas.
void AppendTokenLogprobs(const TokenTexts& texts, const GenerationDelta& delta,
                         std::string& out);

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_CHAT_OUTPUT_H_
