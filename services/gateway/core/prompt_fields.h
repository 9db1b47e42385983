// Fields with texts or token ids: `prompt` of completions, `input` of
// embeddings. Pure functions, thread-safe.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_PROMPT_FIELDS_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_PROMPT_FIELDS_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/json_fwd.h"
#include "common/base/types.h"
#include "services/gateway/core/api_request.h"

namespace foretoken::gateway {

// An array of token ids. Errors name `field`, here and below.
absl::StatusOr<std::vector<TokenId>> ReadTokens(const Json& list,
                                                absl::string_view field);

// A string, an array of strings, an array of token ids, or an array of up to
// `max_prompts` of such arrays. `value`: null if the field is absent, which is
// an error.
absl::StatusOr<std::vector<Prompt>> ReadPrompts(const Json* value,
                                                absl::string_view field,
                                                size_t max_prompts);

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_PROMPT_FIELDS_H_
