// Reads what becomes of a model's reasoning, as SGLang, vLLM and llama.cpp name
// it, and lets a model think before a constrained answer.
//
//   separate_reasoning: false         SGLang: it stays in the content
//   reasoning_format: "none"          llama.cpp: the same
//   include_reasoning: false          vLLM: it is left out
//
// How much a model thinks is its template's matter: reasoning_effort and
// enable_thinking become the template's variables of these names, if it reads
// them. Some templates have `thinking` in the place of the latter.
//
// Pure functions, thread-safe.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_REASONING_RULES_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_REASONING_RULES_H_

#include "absl/status/status.h"
#include "common/text/chat/model_chat.h"
#include "services/gateway/core/api_request.h"
#include "services/gateway/core/request_fields.h"

namespace foretoken::gateway {

// Reads the fields of a chat into request.reasoning and request.thinking_wish;
// errors are left in `fields`.
void ReadReasoningFields(RequestFields& fields, ApiRequest& request);

// Parts of that for other requests: a level of effort, by the name of its
// field, and enable_thinking.
void ReadEffort(const char* field, RequestFields& fields, ApiRequest& request);
void ReadThinkingSwitch(RequestFields& fields, ApiRequest& request);

// Gives the conversation's template what request.thinking_wish asks for. A wish
// that changes nothing with this model goes to request.ignored_fields; one that
// the model cannot meet is an error.
absl::Status ApplyThinkingWish(const ModelChat& chat, ApiRequest& request);

// Lets the model think before the text that request.generation.constraint
// describes, if there is a constraint and `chat` thinks. To be called once
// request.thinking is known.
void AllowThinking(const ModelChat& chat, ApiRequest& request);

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_REASONING_RULES_H_
