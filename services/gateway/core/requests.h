// The bodies of requests, read and checked. Every field that a server does not
// serve is InvalidArgument that names it (api_error.h). Pure functions,
// thread-safe.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_REQUESTS_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_REQUESTS_H_

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/types.h"
#include "common/text/chat/model_chat.h"
#include "services/gateway/core/api_request.h"

namespace foretoken::gateway {

// `body` is the body of the request.

// POST /v1/completions
absl::StatusOr<ApiRequest> ReadCompletionRequest(absl::string_view body);
// POST /v1/chat/completions. The contents of messages are left to the chat
// template.
absl::StatusOr<ApiRequest> ReadChatRequest(absl::string_view body);

// POST /v1/responses, whose input becomes a conversation.
absl::StatusOr<ApiRequest> ReadResponsesRequest(absl::string_view body);

// POST /v1/messages (Anthropic's form) and the conversation of POST
// /v1/messages/count_tokens, which has no sampling and no max_tokens.
absl::StatusOr<ApiRequest> ReadMessagesRequest(absl::string_view body);
absl::StatusOr<ApiRequest> ReadCountTokensRequest(absl::string_view body);

// POST /tokenize: a text or a conversation.
struct TokenizeRequest {
  std::string model;
  std::variant<std::string, ChatRequest> input;
  bool add_special_tokens = true;  // of a text
};
absl::StatusOr<TokenizeRequest> ReadTokenizeRequest(absl::string_view body);

// POST /detokenize
struct DetokenizeRequest {
  std::string model;
  std::vector<TokenId> tokens;
};
absl::StatusOr<DetokenizeRequest> ReadDetokenizeRequest(absl::string_view body);

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_REQUESTS_H_
