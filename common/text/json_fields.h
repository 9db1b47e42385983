// Typed fields of a JSON object, with errors that name field and value.
#ifndef FORETOKEN_COMMON_TEXT_JSON_FIELDS_H_
#define FORETOKEN_COMMON_TEXT_JSON_FIELDS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/json.h"

namespace foretoken {

// "where: value, want ..."; a long value is cut.
absl::Status BadField(absl::string_view where, const Json& value,
                      absl::string_view want);

// The member, or null if it is not there. InvalidArgument if `object` is none.
absl::StatusOr<Json> Member(const Json& object, const std::string& where,
                            const char* name);

// With a default for members that are missing or null.
absl::StatusOr<bool> BoolMember(const Json& object, const std::string& where,
                                const char* name, bool otherwise);

absl::StatusOr<std::string> StringMember(const Json& object,
                                         const std::string& where,
                                         const char* name);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_JSON_FIELDS_H_
