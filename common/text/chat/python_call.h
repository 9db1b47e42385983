// PythonCall: the text, other than JSON, that Llama 3 writes after
// <|python_tag|>: the call of a built-in tool, brave_search.call(query="..."),
// or code, which becomes the argument `code` of a call of code_interpreter.
// Where these tools are not offered it is content, after the tag.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_TEXT_CHAT_PYTHON_CALL_H_
#define FORETOKEN_COMMON_TEXT_CHAT_PYTHON_CALL_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/text/chat/tool_call_writer.h"

namespace foretoken {

class PythonCall {
 public:
  PythonCall(absl::string_view tag, ToolCallWriter& writer)
      : tag_(tag), writer_(writer) {}

  void Take(char c);
  // The end of the answer: completes the call.
  void End();

 private:
  bool MayBeBuiltIn() const;
  // It is not the call of a built-in tool.
  void BeginOther();
  void Write(absl::string_view text);

  enum class Kind : uint8_t { kUnknown, kCode, kContent };

  const absl::string_view tag_;
  ToolCallWriter& writer_;
  std::string held_;  // while it may be the call of a built-in tool
  Kind kind_ = Kind::kUnknown;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_CHAT_PYTHON_CALL_H_
