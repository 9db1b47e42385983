// Whether a model is to think before it answers, as `thinking` of /v1/messages
// asks for it:
//
//   {"type": "adaptive"}                       as the model decides
//   {"type": "enabled", "budget_tokens": N}    it thinks
//   {"type": "disabled"}                       it does not
//
// Templates turn thinking on and off by the variables enable_thinking and
// thinking. A budget below that of the whole answer cannot be kept to.
//
// Pure functions, thread-safe.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_MESSAGE_THINKING_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_MESSAGE_THINKING_H_

#include "absl/status/status.h"
#include "common/text/chat/model_chat.h"
#include "services/gateway/core/api_request.h"
#include "services/gateway/core/request_fields.h"

namespace foretoken::gateway {

// Reads `thinking` into request.message_thinking and the conversation's variables,
// which have been read; errors are left in `fields`. Once request.max_tokens is
// known.
void ReadMessageThinking(RequestFields& fields, ApiRequest& request);

// InvalidArgument if the model or its template does not do what the request
// wishes. Once request.thinking is known.
absl::Status CheckMessageThinking(const ModelChat& chat,
                               const ApiRequest& request);

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_MESSAGE_THINKING_H_
