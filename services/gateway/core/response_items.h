// The input of POST /v1/responses as messages of a chat. Pure function,
// thread-safe.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_RESPONSE_ITEMS_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_RESPONSE_ITEMS_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/json_fwd.h"

namespace foretoken::gateway {

inline constexpr size_t kMaxInputItems = 4096;

// A JSON list of messages in the form of /v1/chat/completions: `instructions`,
// if not empty, as those of the system, then `input`, a text or an array of
// items. Calls of functions join the assistant's message directly before them;
// reasoning becomes the reasoning_content of the one directly after it.
// InvalidArgument names the field: "input[1].content[0].type: ...".
absl::StatusOr<std::string> MessagesOfInput(const Json& input,
                                            absl::string_view instructions);

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_RESPONSE_ITEMS_H_
