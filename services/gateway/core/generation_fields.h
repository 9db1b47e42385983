// The fields that all requests to generate share: sampling, stop strings, seed,
// streaming, and the extensions (top_k, min_p, repetition_penalty, min_tokens,
// ignore_eos, stop_token_ids, speculation, cache_scope, foretoken).
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_GENERATION_FIELDS_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_GENERATION_FIELDS_H_

#include <cstdint>
#include <optional>

#include "services/gateway/core/api_request.h"
#include "services/gateway/core/field_rules.h"
#include "services/gateway/core/request_fields.h"

namespace foretoken::gateway {

// Reads them into `request`, and takes or refuses those of the endpoint that
// field_rules.h lists; errors are left in `fields`.
void ReadGenerationFields(RequestFields& fields, ApiRequest& request,
                          ApiEndpoint endpoint);

// The limit of an answer's tokens. Without one: nullopt. So others write -1.
std::optional<int64_t> ReadTokenLimit(RequestFields& fields, const char* field);

// `n`, for a request of `prompts` prompts.
void ReadChoices(RequestFields& fields, int64_t prompts, ApiRequest& request);

// `chat_template_kwargs` and `add_generation_prompt`; `text`: the whole body.
void ReadTemplateVariables(absl::string_view text, RequestFields& fields,
                           ChatRequest& conversation);

// A constraint is on all of an answer's text, which a call of a tool would not
// keep to: a request may not have both.
void RefuseToolsWithConstraint(RequestFields& fields,
                               const ApiRequest& request);

// Checks `metadata`, pairs of texts within OpenAI's bounds.
void ReadMetadata(RequestFields& fields);

// The largest number of tokens that a request may ask for; the model's context
// is checked where it is known.
inline constexpr int64_t kMostTokens = int64_t{1} << 30;

// The seed of the i-th choice of a prompt: that of the request for the first
// one, so that one choice is what gRPC gives for the same request.
uint64_t SeedOfChoice(uint64_t seed, int64_t choice);

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_GENERATION_FIELDS_H_
