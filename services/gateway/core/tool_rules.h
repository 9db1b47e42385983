// Reads a request's rules for tool calls and makes a constraint from them:
// tool_choice can require a call, and `strict` makes the arguments follow the
// function's schema.
//
// Pure functions, thread-safe.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_TOOL_RULES_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_TOOL_RULES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/text/chat/model_chat.h"
#include "services/gateway/core/api_request.h"
#include "services/gateway/core/request_fields.h"

namespace foretoken::gateway {

// Where a tool_choice names its function: {"function": {"name"}} in chats,
// {"name"} in responses.
enum class FunctionPlace : uint8_t { kMember, kTop };

// Reads `tool_choice` into request.tool_rules and returns whether tools may be
// called. Errors are left in `fields`.
bool ReadToolChoice(RequestFields& fields, FunctionPlace place,
                    ApiRequest& request);
// To be called once request.with_tools and tool_names are known. Fails `fields`
// if the chosen tool does not exist, and drops rules if no tool may be called.
void CheckToolChoice(RequestFields& fields, FunctionPlace place,
                     ApiRequest& request);
// Reads `strict` of a function, whose fields are `function`, into `request`.
void ReadStrict(RequestFields& function, ApiRequest& request);

// Sets request.generation.constraint by request.tool_rules, in the form in
// which `chat` writes calls: before the conversation, whose tools it reads,
// goes. Nothing to do without rules. InvalidArgument names a tool that cannot
// be called so, or the field that asks for what the form does not have.
absl::Status ConstrainToolCalls(const ModelChat& chat, ApiRequest& request);

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_TOOL_RULES_H_
