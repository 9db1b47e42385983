// Typed fields of a JSON object; errors name field and value.
#ifndef FORETOKEN_COMMON_TEXT_JSON_FIELDS_H_
#define FORETOKEN_COMMON_TEXT_JSON_FIELDS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/json_fwd.h"

namespace foretoken {

// Returns "where: value, want ..."; long values are truncated.
absl::Status BadField(absl::string_view where, const Json& value,
                      absl::string_view want);

// Returns the member, or null if missing. InvalidArgument if `object` is not an
// object.
absl::StatusOr<Json> Member(const Json& object, const std::string& where,
                            const char* name);

// Returns `otherwise` if the member is missing or null.
absl::StatusOr<bool> BoolMember(const Json& object, const std::string& where,
                                const char* name, bool otherwise);

// InvalidArgument unless the member is a string.
absl::StatusOr<std::string> StringMember(const Json& object,
                                         const std::string& where,
                                         const char* name);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_JSON_FIELDS_H_
