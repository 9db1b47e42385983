// Answer: the output of a request in the form of an endpoint, as a stream of
// frames (server-sent events) or as one body.
//
//   per choice  OnDelta* -> OnResult
//   then        Finish
//
// Choices may be mixed in any order. Owned by one thread at a time.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_ANSWER_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_ANSWER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/generation/generation.h"
#include "common/text/chat/model_chat.h"
#include "common/text/tokenizer.h"
#include "services/gateway/core/api_error.h"
#include "services/gateway/core/api_request.h"

namespace foretoken::gateway {

// Times of a whole request, from its start.
struct AnswerTimes {
  absl::Duration first_token;
  absl::Duration total;
};

class Answer {
 public:
  virtual ~Answer() = default;

  // Append to `out` what a stream sends for it; nothing otherwise.
  virtual void OnDelta(int64_t choice, const GenerationDelta& delta,
                       std::string& out) = 0;
  virtual void OnResult(int64_t choice, const GenerationSummary& summary,
                        std::string& out) = 0;
  // Appends the end of a stream, or the whole body.
  virtual void Finish(const AnswerTimes& times, std::string& out) = 0;
  // Appends the end of a stream that has begun and breaks: by default a frame
  // with the error, and [DONE].
  virtual void Fail(const ApiError& error, std::string& out);
  // Bytes of output, as JSON, that a stream keeps for its last events. 0 for a
  // body, whose memory is taken before it begins.
  virtual int64_t kept_bytes() const { return 0; }
};

struct AnswerOptions {
  std::string id;       // "chatcmpl-..."
  int64_t created = 0;  // Unix time in seconds
  std::string model;
  // For the texts of tokens; may be null; must outlive the answer.
  const Tokenizer* tokenizer = nullptr;
  // For tool calls and reasoning; not null for a conversation.
  const ModelChat* chat = nullptr;
  // One per prompt: the text that `echo` shows before its choices.
  std::vector<std::string> echoes;
};

std::unique_ptr<Answer> MakeChatAnswer(const ApiRequest& request,
                                       AnswerOptions options);
// A message in Anthropic's form, or its events.
std::unique_ptr<Answer> MakeMessagesAnswer(const ApiRequest& request,
                                           AnswerOptions options);
// A completion in llama.cpp's form, or its pieces. The request has one prompt,
// of token ids.
std::unique_ptr<Answer> MakeInfillAnswer(const ApiRequest& request,
                                         AnswerOptions options);
// The request's prompts have a pooling.
std::unique_ptr<Answer> MakeEmbeddingsAnswer(const ApiRequest& request,
                                             AnswerOptions options);
std::unique_ptr<Answer> MakeCompletionAnswer(const ApiRequest& request,
                                             AnswerOptions options);
// The stream keeps all of the output, which its last events repeat.
std::unique_ptr<Answer> MakeResponsesAnswer(const ApiRequest& request,
                                            AnswerOptions options);

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_ANSWER_H_
