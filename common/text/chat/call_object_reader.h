// CallObjectReader: one tool call written as a JSON object with a name and
// arguments (or parameters), byte by byte. Other keys are skipped.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_TEXT_CHAT_CALL_OBJECT_READER_H_
#define FORETOKEN_COMMON_TEXT_CHAT_CALL_OBJECT_READER_H_

#include <cstdint>
#include <string>

#include "common/text/chat/json_scanner.h"
#include "common/text/chat/tool_call_writer.h"

namespace foretoken {

class CallObjectReader {
 public:
  enum class Result : uint8_t { kMore, kDone, kMalformed };

  // `writer` gets the call as soon as its name is known and its arguments
  // begin. `needs_arguments`: an object without them is malformed; else its
  // arguments are {}.
  CallObjectReader(ToolCallWriter& writer, bool needs_arguments)
      : writer_(writer), needs_arguments_(needs_arguments) {}

  // The first byte is the brace. kMalformed: the byte was not taken, and the
  // call, if it has begun, ends here.
  Result Take(char c);

  // Whether the writer has the call.
  bool begun() const { return begun_; }

 private:
  enum class State : uint8_t {
    kStart,
    kKeyOrEnd,
    kKey,  // inside
    kColon,
    kValue,   // before it
    kInside,  // of a value that is scanned
    kText,    // of a value that is a string to decode: the name, or arguments
    kCommaOrEnd,
  };
  enum class Field : uint8_t { kName, kArguments, kOther };

  Result TakeInside(char c);
  void EndValue();
  void BeginIfReady();
  void Emit();
  Result End();

  ToolCallWriter& writer_;
  const bool needs_arguments_;
  State state_ = State::kStart;
  Field field_ = Field::kOther;
  std::string key_;
  std::string name_;
  bool has_name_ = false;
  bool has_arguments_ = false;  // they began
  bool begun_ = false;
  std::string pending_;  // arguments that the writer has not got yet
  JsonStringDecoder text_;
  JsonValueScanner value_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_CHAT_CALL_OBJECT_READER_H_
