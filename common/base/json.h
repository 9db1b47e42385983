// JSON parsing with errors as Status. The parser is nlohmann-json; its
// exceptions do not leave these functions.
#ifndef FORETOKEN_COMMON_BASE_JSON_H_
#define FORETOKEN_COMMON_BASE_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace foretoken {

using Json = nlohmann::json;

// InvalidArgument names the byte offset; nesting deeper than 64 levels is also
// refused, so that hostile input cannot exhaust the stack of a recursive
// reader.
absl::StatusOr<Json> ParseJson(absl::string_view text);

// Reads (gzip or plain) and parses a file. Errors name the file.
absl::StatusOr<Json> ReadJsonFile(const std::string& path);

// Serialises to one line; invalid UTF-8 becomes U+FFFD instead of an exception.
std::string DumpJson(const Json& value);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_JSON_H_
