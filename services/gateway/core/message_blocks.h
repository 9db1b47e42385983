// The messages of POST /v1/messages (Anthropic's form) as messages of a chat.
// Pure functions, thread-safe.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_MESSAGE_BLOCKS_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_MESSAGE_BLOCKS_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/json_fwd.h"
#include "services/gateway/core/request_fields.h"

namespace foretoken::gateway {

inline constexpr size_t kMaxBlockMessages = 4096;

// A JSON list of messages in the form of /v1/chat/completions: `system`, a text
// or text blocks, if it is not null, then `messages`, which the body spells as
// `raw`. Messages of one role that follow one another are one. Calls of tools
// become tool_calls, whose arguments are spelled as the request has them; each
// result is a message of the role tool; thinking becomes the reasoning_content
// of the text and calls after it. InvalidArgument names the field:
// "messages[1].content[0].type: ...".
absl::StatusOr<std::string> MessagesOfBlocks(const Json* system,
                                             const Json& messages,
                                             absl::string_view raw);

// Checks `cache_control` of an object, which asks for a cache that is kept here
// in any case. Errors are left in `fields`.
void CheckCacheControl(RequestFields& fields);

// Fails `fields` unless the field is absent or one of `harmless`, which asks
// for nothing that this server does not do. `want`: what is served.
void AllowOnly(RequestFields& fields, absl::string_view field,
               std::initializer_list<Json> harmless, absl::string_view want);

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_MESSAGE_BLOCKS_H_
