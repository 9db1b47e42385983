// ToolCallWrapper: what a model writes around the parts of its tool calls, for
// grammars of them. ToolCallParser reads all that is written so as calls.
#ifndef FORETOKEN_COMMON_TEXT_CHAT_TOOL_CALL_WRAPPER_H_
#define FORETOKEN_COMMON_TEXT_CHAT_TOOL_CALL_WRAPPER_H_

#include "absl/strings/string_view.h"
#include "common/text/chat/tool_call_form.h"

namespace foretoken {

// A text with calls is `begin`, calls with `separator` between them, `end`; a
// call is before_name, its function's name, before_arguments, a JSON object and
// after_arguments. Control tokens are spelled.
struct ToolCallWrapper {
  absl::string_view begin, before_name, before_arguments, after_arguments,
      separator, end;
  // Content does not contain `opener` and, unless `first` is empty, does not
  // begin with it after white space: a call follows there.
  absl::string_view opener, first;
  // Content may stand before a call; otherwise an answer is content or calls.
  bool content_before = false;
};

// As `chat_template` teaches its model to write calls of this form. Not for
// kNone.
ToolCallWrapper ToolCallWrapperOf(ToolCallForm form,
                                  absl::string_view chat_template);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_CHAT_TOOL_CALL_WRAPPER_H_
