// Appending JSON as text, for what is written once per token: building a tree
// of values for it would cost several times as much, in time and in memory.
// Pure functions, thread-safe.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_JSON_TEXT_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_JSON_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/types.h"

namespace foretoken::gateway {

// With quotes; bytes that are not UTF-8 become U+FFFD.
void AppendJsonString(absl::string_view text, std::string& out);
std::string JsonString(absl::string_view text);
// Number of bytes that AppendJsonString appends.
size_t JsonStringBytes(absl::string_view text);

// [1,2,3]; ids of 0 and above.
void AppendJsonTokens(absl::Span<const TokenId> tokens, std::string& out);
// Number of bytes that AppendJsonTokens appends.
size_t JsonTokensBytes(absl::Span<const TokenId> tokens);

// A log-probability with the digits of a float; JSON has no infinity, which
// becomes -9999, as in other servers.
void AppendLogprob(float logprob, std::string& out);

// Appends one frame of a stream of server-sent events. `data` has no newline.
void AppendFrame(absl::string_view data, std::string& out);

// The last frame of a stream.
inline constexpr absl::string_view kDoneFrame = "data: [DONE]\n\n";

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_JSON_TEXT_H_
