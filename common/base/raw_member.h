// Parts of a JSON text as it spells them. Pure functions, thread-safe.
#ifndef FORETOKEN_COMMON_BASE_RAW_MEMBER_H_
#define FORETOKEN_COMMON_BASE_RAW_MEMBER_H_

#include <vector>

#include "absl/strings/string_view.h"

namespace foretoken {

// The text of the member `key` of the object `json`, which a parser has
// accepted; empty if there is none. If there are several, the last, as the
// parser takes it. `key` needs no escapes. Linear in the text.
absl::string_view RawMember(absl::string_view json, absl::string_view key);

// The elements of the array `json`, which a parser has accepted. Linear in the
// text.
std::vector<absl::string_view> RawElements(absl::string_view json);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_RAW_MEMBER_H_
