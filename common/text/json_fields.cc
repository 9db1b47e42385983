#include "common/text/json_fields.h"

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"

namespace foretoken {
namespace {

// Error messages stay readable when a whole vocabulary is the bad value.
constexpr size_t kMaxQuotedBytes = 100;

}  // namespace

absl::Status BadField(absl::string_view where, const Json& value,
                      absl::string_view want) {
  std::string quoted = DumpJson(value);
  if (quoted.size() > kMaxQuotedBytes) {
    quoted = quoted.substr(0, kMaxQuotedBytes) + "...";
  }
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": ", quoted, ", want ", want));
}

absl::StatusOr<Json> Member(const Json& object, const std::string& where,
                            const char* name) {
  if (!object.is_object()) return BadField(where, object, "an object");
  const auto member = object.find(name);
  return member == object.end() ? Json() : *member;
}

absl::StatusOr<bool> BoolMember(const Json& object, const std::string& where,
                                const char* name, bool otherwise) {
  FORETOKEN_ASSIGN_OR_RETURN(const Json value, Member(object, where, name));
  if (value.is_null()) return otherwise;
  if (!value.is_boolean()) {
    return BadField(absl::StrCat(where, ".", name), value, "true or false");
  }
  return value.get<bool>();
}

absl::StatusOr<std::string> StringMember(const Json& object,
                                         const std::string& where,
                                         const char* name) {
  FORETOKEN_ASSIGN_OR_RETURN(const Json value, Member(object, where, name));
  if (!value.is_string()) {
    return BadField(absl::StrCat(where, ".", name), value, "a string");
  }
  return value.get<std::string>();
}

}  // namespace foretoken
