// JSON parsing with errors as Status and within limits. The tokenizer of JSON
// is nlohmann-json's; its exceptions do not leave these functions.
#ifndef FORETOKEN_COMMON_BASE_JSON_H_
#define FORETOKEN_COMMON_BASE_JSON_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/json_fwd.h"
#include "nlohmann/json.hpp"

namespace foretoken {

struct JsonLimits {
  // Levels of containers, so that hostile input cannot exhaust the stack of a
  // recursive reader.
  int max_depth = 64;
  // Values, which may take a hundred times the memory of their text. Numbers in
  // arrays do not count: they take 16 bytes, and a prompt of token ids may be
  // as long as a context. The default suits files: a tokenizer.json of 256k
  // tokens has 1.8 million.
  int64_t max_values = 2'000'000;
  // Refuses an object that names a key twice. Otherwise the last one counts.
  bool unique_keys = false;
};

// For the bodies of requests.
inline constexpr JsonLimits kRequestJsonLimits = {.max_values = 100'000};

// Linear in the text. InvalidArgument names the byte offset of an error, or the
// limit that is exceeded.
absl::StatusOr<Json> ParseJson(absl::string_view text,
                               const JsonLimits& limits = {});

// Reads (gzip or plain) and parses a file. Errors name the file.
absl::StatusOr<Json> ReadJsonFile(const std::string& path);

// Serialises to one line; invalid UTF-8 becomes U+FFFD instead of an exception.
std::string DumpJson(const Json& value);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_JSON_H_
