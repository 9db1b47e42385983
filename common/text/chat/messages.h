// Messages of the OpenAI API in the form that chat templates expect.
//
// Pure functions, thread-safe.
#ifndef FORETOKEN_COMMON_TEXT_CHAT_MESSAGES_H_
#define FORETOKEN_COMMON_TEXT_CHAT_MESSAGES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/jinja/value.h"

namespace foretoken {

// How NormalizeMessages treats what a template may not know.
struct MessageRules {
  // Templates without this role would write a control token that the model has
  // never seen: its messages become those of the system.
  bool developer_as_system = true;
};

// Parses a JSON list of messages; all its text is the request's. Changes:
// - fields that are null, and empty tool_calls, are left out;
// - content in parts ({"type": "text", "text": ...}) is joined by line feeds;
// - content that is missing is empty;
// - an assistant's reasoning that comes as `reasoning` alone, its newer name in
//   vLLM, is reasoning_content as well, which templates read;
// - arguments of tool calls that spell a JSON object become that object, as
//   templates print it themselves.
// InvalidArgument names the field: "messages[1].content[0].type: ...".
absl::StatusOr<jinja::Value> NormalizeMessages(absl::string_view json,
                                               const MessageRules& rules);

// Parses a JSON list of tools. None for an empty text, null and an empty list.
// InvalidArgument names the field.
absl::StatusOr<jinja::Value> ParseTools(absl::string_view json);

// Upper bound of the memory of the values that `json` becomes, with the copies
// of messages until they are rendered. `json` is what a parser has accepted.
int64_t ValueBytes(absl::string_view json);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_CHAT_MESSAGES_H_
