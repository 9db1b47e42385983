// ArgumentsReader: the arguments of one tool call, a JSON object, byte by byte.
//
// A call begins once its name is known and its arguments are whole, so that
// a call that breaks off before then stays text. Long arguments are not waited
// for: beyond kMaxWholeBytes the call begins, and may then be cut off.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_TEXT_CHAT_ARGUMENTS_READER_H_
#define FORETOKEN_COMMON_TEXT_CHAT_ARGUMENTS_READER_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "common/text/chat/json_scanner.h"
#include "common/text/chat/tool_call_writer.h"

namespace foretoken {

class ArgumentsReader {
 public:
  // A client sees nothing of a call for so long.
  static constexpr size_t kMaxWholeBytes = size_t{2} << 10;

  explicit ArgumentsReader(ToolCallWriter& writer) : writer_(writer) {}

  // Once, with a name that is offered.
  void SetName(absl::string_view name);
  // White space around the object is skipped. False: the byte cannot go on with
  // it and was not taken; the call, if it has begun, is cut off.
  bool Take(char c);
  // The arguments of a call that gives none are {}. Not after Take.
  void SetNone();

  bool ended() const { return ended_; }
  // Whether the writer has the call.
  bool begun() const { return begun_; }

 private:
  void Emit();

  ToolCallWriter& writer_;
  std::string name_;
  JsonValueScanner scanner_;
  bool started_ = false;
  bool ended_ = false;
  bool begun_ = false;
  std::string pending_;  // what the writer has not got yet
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_CHAT_ARGUMENTS_READER_H_
