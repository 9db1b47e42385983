// CallObjectReader: one tool call written as a JSON object with a name and
// arguments (or parameters), byte by byte. Other keys are skipped.
//
// Braces of the object may be doubled, {{"name": ...}}: Qwen2.5's template
// shows calls so, and its models copy them.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_TEXT_CHAT_CALL_OBJECT_READER_H_
#define FORETOKEN_COMMON_TEXT_CHAT_CALL_OBJECT_READER_H_

#include <cstdint>
#include <string>

#include "common/text/chat/arguments_reader.h"
#include "common/text/chat/json_scanner.h"
#include "common/text/chat/tool_call_writer.h"

namespace foretoken {

class CallObjectReader {
 public:
  enum class Result : uint8_t { kMore, kDone, kMalformed };

  // `writer` gets the call as soon as it begins (ArgumentsReader). An object
  // whose name is not offered is malformed. `needs_arguments`: so is one
  // without them; else its arguments are {}.
  CallObjectReader(ToolCallWriter& writer, bool needs_arguments)
      : writer_(writer),
        needs_arguments_(needs_arguments),
        arguments_(writer) {}

  // The first byte is the brace. kMalformed: the byte was not taken, and the
  // call, if it has begun, ends here.
  Result Take(char c);

  // Whether the writer has the call.
  bool begun() const { return arguments_.begun(); }

 private:
  enum class State : uint8_t {
    kStart,
    kBraceOrKey,  // after the first brace
    kKeyOrEnd,
    kKey,  // inside
    kColon,
    kValue,  // before it
    kOther,  // inside of one that is skipped
    kName,
    kArguments,
    kArgumentsText,  // inside of arguments that are a string with the object
    kNull,           // inside of arguments that are null, which are none
    kCommaOrEnd,
    kSecondEnd,  // of doubled braces
  };
  Result BeginValue(char c);
  Result TakeOther(char c);
  Result TakeName(char c);
  Result TakeArguments(char c);
  Result TakeArgumentsText(char c);
  Result End();

  ToolCallWriter& writer_;
  const bool needs_arguments_;
  State state_ = State::kStart;
  std::string key_;
  std::string name_;
  bool has_name_ = false;
  bool doubled_ = false;        // the braces
  bool has_arguments_ = false;  // they began
  ArgumentsReader arguments_;
  bool arguments_text_ = false;  // the string with them is not empty
  JsonStringDecoder text_;
  JsonValueScanner value_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_CHAT_CALL_OBJECT_READER_H_
