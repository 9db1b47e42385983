// JSON input with errors as Status. The parser is nlohmann-json; no exception
// of its leaves these functions.
#ifndef FORETOKEN_COMMON_BASE_JSON_H_
#define FORETOKEN_COMMON_BASE_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace foretoken {

using Json = nlohmann::json;

// InvalidArgument with the byte offset, and for nesting deeper than 64 levels
// (a parser's stack is not for strangers to fill).
absl::StatusOr<Json> ParseJson(absl::string_view text);

// Reads (gzip or plain) and parses; errors name the file.
absl::StatusOr<Json> ReadJsonFile(const std::string& path);

// One line, invalid UTF-8 replaced by U+FFFD rather than thrown over.
std::string DumpJson(const Json& value);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_JSON_H_
