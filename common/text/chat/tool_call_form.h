// The text forms in which models write tool calls.
#ifndef FORETOKEN_COMMON_TEXT_CHAT_TOOL_CALL_FORM_H_
#define FORETOKEN_COMMON_TEXT_CHAT_TOOL_CALL_FORM_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace foretoken {

enum class ToolCallForm : uint8_t {
  kNone,     // answers hold no tool calls: all of it is content
  kLlama3,   // {"name": ..., "parameters": ...}, also behind <|python_tag|>
  kHermes,   // <tool_call>{"name": ..., "arguments": ...}</tool_call>
  kMistral,  // [TOOL_CALLS][{"name": ..., "arguments": ...}]
};

// none, llama3, hermes or mistral; InvalidArgument for any other name.
absl::StatusOr<ToolCallForm> ParseToolCallForm(absl::string_view name);

// The form that a chat template teaches its model.
ToolCallForm ToolCallFormOf(absl::string_view chat_template);

// Texts of the tokens that structure answers of this form. Generated text omits
// them where the vocabulary marks them special; see SpelledControls.
absl::Span<const absl::string_view> ToolCallControls(ToolCallForm form);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_CHAT_TOOL_CALL_FORM_H_
