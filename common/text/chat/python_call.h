// PythonCall: what Llama 3 writes behind <|python_tag|> that is no JSON: the
// call of a built-in tool, brave_search.call(query="..."), or code, which
// becomes the argument `code` of a call of code_interpreter.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_TEXT_CHAT_PYTHON_CALL_H_
#define FORETOKEN_COMMON_TEXT_CHAT_PYTHON_CALL_H_

#include <string>

#include "absl/strings/string_view.h"
#include "common/text/chat/tool_call_writer.h"

namespace foretoken {

class PythonCall {
 public:
  explicit PythonCall(ToolCallWriter& writer) : writer_(writer) {}

  void Take(char c);
  // The end of the answer: completes the call.
  void End();

 private:
  bool MayBeBuiltIn() const;
  void BeginCode();
  void WriteCode(absl::string_view code);

  ToolCallWriter& writer_;
  std::string held_;  // while it may be the call of a built-in tool
  bool is_code_ = false;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_CHAT_PYTHON_CALL_H_
