// FencedCalls: finds tool calls that a model writes as a fenced block in its
// content, as Qwen-Coder does:
//
//   ```json
//   {"name": "f", "arguments": {"x": 1}}
//   ```
//
// The block has no language or `json`. It holds nothing but one call, or an
// array of calls, each to an offered tool and with its arguments. White space
// around the block is dropped. Everything else is content, unchanged:
// blocks of other languages with all that is in them, blocks without an end,
// and blocks of more than kMaxHeldBytes.
//
// An answer may also begin with such a call without a fence, on lines of its
// own and with "name" as its first key; further calls may follow it.
//
// A block is held back only while it may still be a call.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_TEXT_CHAT_FENCED_CALLS_H_
#define FORETOKEN_COMMON_TEXT_CHAT_FENCED_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "common/text/chat/call_object_reader.h"
#include "common/text/chat/tool_call_writer.h"

namespace foretoken {

class FencedCalls {
 public:
  // `writer` gets plain content and calls; both must outlive this object.
  FencedCalls(ToolCallWriter& writer, const ToolNames& offered)
      : writer_(writer), offered_(offered) {}

  // The next byte of the content.
  void Take(char c);
  // A call in another form stands here; the content after it begins a line.
  // Passes on what is held back.
  void Interrupt();
  // The end of the answer.
  void End();

 private:
  enum class State : uint8_t {
    kText,
    kFence,       // three backticks and `json`, as far as they have come
    kOtherFence,  // the line of a fence whose block is no call
    kCall,        // inside of a block that may be a call
    kBareCall,    // the same without a fence
    kOtherBlock,  // inside of one that is not
  };
  // The part of a block that comes next.
  enum class Part : uint8_t { kValue, kObject, kBehindObject, kClose };

  void TakeText(char c);
  void TakeFence(char c);
  void TakeOtherFence(char c);
  void TakeCall(char c);
  void TakeBareCall(char c);
  void TakeOtherBlock(char c);

  // Follows the lines of a block to its closing fence: at least as many
  // backticks as the opening one has, alone on a line. True for the end of that
  // line.
  bool CloseBlock(char c);
  void BeginLine();
  void BeginBlock(State state);
  // Reads a byte of the value in a block. False: it cannot be a call.
  bool TakeValue(char c);
  void WriteCalls();
  // Makes content of what is held.
  void Release();

  ToolCallWriter& writer_;
  const ToolNames& offered_;
  State state_ = State::kText;
  bool line_start_ = true;     // only blanks so far on a line of text
  bool has_content_ = false;   // the writer has some, other than white space
  bool is_bare_call_ = false;  // what is held begins one
  bool behind_call_ = false;   // only white space since a block that was a call
  std::string spaces_;         // white space before what comes next
  std::string held_;           // of a block, from its fence
  size_t ticks_ = 0;           // of the opening fence
  bool in_ticks_ = false;      // its backticks may go on
  // The current line of a block: backticks at its beginning, whether they may
  // go on, and whether anything but blanks stands beside them.
  size_t line_ticks_ = 0;
  bool line_in_ticks_ = true;
  bool line_has_text_ = false;

  Part part_ = Part::kValue;
  bool in_list_ = false;
  size_t close_ticks_ = 0;
  // Gets the calls of a block until its end is seen.
  std::optional<ToolCallWriter> calls_;
  std::optional<CallObjectReader> reader_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_CHAT_FENCED_CALLS_H_
