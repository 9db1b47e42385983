#include "services/gateway/core/prompt_fields.h"

#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "services/gateway/core/api_error.h"

namespace foretoken::gateway {

absl::StatusOr<std::vector<TokenId>> ReadTokens(const Json& list,
                                                absl::string_view field) {
  std::vector<TokenId> tokens;
  tokens.reserve(list.size());
  for (const Json& each : list) {
    if (!each.is_number_integer() || each < 0 ||
        each > std::numeric_limits<TokenId>::max()) {
      return FieldError(field, "want token ids of 0 and above",
                        "invalid_value");
    }
    tokens.push_back(each.get<TokenId>());
  }
  return tokens;
}

absl::StatusOr<std::vector<Prompt>> ReadPrompts(const Json* value,
                                                absl::string_view field,
                                                size_t max_prompts) {
  if (value == nullptr) {
    return FieldError(field, "is required", "missing_required_parameter");
  }
  std::vector<Prompt> prompts;
  if (value->is_string()) {
    prompts.emplace_back(value->get<std::string>());
    return prompts;
  }
  if (!value->is_array() || value->empty()) {
    return FieldError(field, "want a string, or an array that is not empty",
                      "invalid_type");
  }
  if (value->front().is_number()) {
    FORETOKEN_ASSIGN_OR_RETURN(auto tokens, ReadTokens(*value, field));
    prompts.emplace_back(std::move(tokens));
    return prompts;
  }
  if (value->size() > max_prompts) {
    return FieldError(field,
                      absl::StrCat("want at most ", max_prompts, " prompts"),
                      "array_above_max_length");
  }
  for (const Json& each : *value) {
    if (each.is_string() && value->front().is_string()) {
      prompts.emplace_back(each.get<std::string>());
    } else if (each.is_array() && value->front().is_array()) {
      FORETOKEN_ASSIGN_OR_RETURN(auto tokens, ReadTokens(each, field));
      prompts.emplace_back(std::move(tokens));
    } else {
      return FieldError(field, "want strings alone, or token ids alone",
                        "invalid_type");
    }
  }
  return prompts;
}

}  // namespace foretoken::gateway
