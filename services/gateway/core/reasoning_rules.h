// Reads what becomes of a model's reasoning, as SGLang, vLLM and llama.cpp name
// it, and lets a model think before a constrained answer.
//
//   separate_reasoning: false         SGLang: it stays in the content
//   reasoning_format: "none"          llama.cpp: the same
//   include_reasoning: false          vLLM: it is left out
//
// Without effect: stream_reasoning: true (SGLang), reasoning_in_content: false
// and thinking_forced_open: false (llama.cpp). Their other values are refused.
//
// Pure functions, thread-safe.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_REASONING_RULES_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_REASONING_RULES_H_

#include "common/text/chat/model_chat.h"
#include "services/gateway/core/api_request.h"
#include "services/gateway/core/request_fields.h"

namespace foretoken::gateway {

// Reads the fields of a chat into request.reasoning; errors are left in
// `fields`.
void ReadReasoningFields(RequestFields& fields, ApiRequest& request);

// Lets the model think before the text that request.generation.constraint
// describes, if there is a constraint and `chat` thinks. To be called once
// request.thinking is known.
void AllowThinking(const ModelChat& chat, ApiRequest& request);

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_REASONING_RULES_H_
