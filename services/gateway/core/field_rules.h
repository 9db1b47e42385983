// Fields of OpenAI's API and of other servers that have no effect here, are
// refused, or are served under another name: one table of rules.
// docs/api_fields.md has the same rows.
//
// Pure functions, thread-safe.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_FIELD_RULES_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_FIELD_RULES_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "services/gateway/core/api_request.h"
#include "services/gateway/core/request_fields.h"

namespace foretoken::gateway {

// Endpoints that generate, as bits.
enum ApiEndpoint : uint8_t {
  kCompletions = 1,
  kChats = 2,
  kResponses = 4,
  kMessages = 8,
  kInfill = 16,
  kAllEndpoints = 31,
};

enum class FieldUse : uint8_t {
  kName,     // another name of the field `detail`
  kRead,     // has code of its own; `detail` says where
  kNeutral,  // taken with a value of the JSON array `detail`, all of which
             // describe the server's behaviour; refused with any other
  kIgnored,  // taken with any value, since none would change an answer, and
             // listed in the header X-Foretoken-Ignored-Fields
  kWithoutPenalties,  // kIgnored without penalties, kNeutral with some
  kRefused,
};

struct FieldRule {
  const char* name;
  const char* servers;  // that have it
  uint8_t endpoints;    // bits of ApiEndpoint
  FieldUse use;
  const char* detail;
};

absl::Span<const FieldRule> FieldRules();

// Makes the fields known that the request gives by names of rules. Before any
// of them is read.
void AddFieldNames(ApiEndpoint endpoint, RequestFields& fields);

// Takes or refuses the fields of the other rules. After sampling has been read.
void ApplyFieldRules(ApiEndpoint endpoint, RequestFields& fields,
                     ApiRequest& request);

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_FIELD_RULES_H_
