// ToolCallParser: the text of an answer, as it streams in, as content and tool
// calls in the form of the OpenAI API's deltas.
//
// However the text is cut, the joined deltas are the same. What only begins
// like a tool call is content: text is held back, at most kMaxHeldBytes of it,
// until a call has a name and arguments. Arguments are passed on as the model
// writes them; they need not be valid JSON, and end early where the text does.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_TEXT_CHAT_TOOL_CALL_PARSER_H_
#define FORETOKEN_COMMON_TEXT_CHAT_TOOL_CALL_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/text/chat/tool_call_form.h"

namespace foretoken {

// A part of one tool call. The first of each call has its id and name; all may
// have a piece of its arguments.
struct ToolCallDelta {
  int index = 0;  // of the call in the answer, from 0
  std::string id;
  std::string name;
  std::string arguments;  // piece of a JSON text
};

struct AnswerDelta {
  std::string content;
  std::vector<ToolCallDelta> tool_calls;

  bool empty() const { return content.empty() && tool_calls.empty(); }
};

class ToolCallParser {
 public:
  static constexpr size_t kMaxHeldBytes = size_t{64} << 10;
  static constexpr size_t kMaxNameBytes = 256;
  // Further ones are content.
  static constexpr int kMaxCalls = 128;

  // Ids of calls are drawn from `id_seed`: equal for equal seeds.
  static std::unique_ptr<ToolCallParser> Create(ToolCallForm form,
                                                uint64_t id_seed);
  virtual ~ToolCallParser() = default;

  // The next text of the answer, control tokens spelled (SpelledControls);
  // returns what is certain.
  virtual AnswerDelta Add(absl::string_view text) = 0;
  // The end of the answer: returns what was held back. Once.
  virtual AnswerDelta Finish() = 0;
  // Calls so far; above 0 the answer's finish_reason is "tool_calls".
  virtual int calls() const = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_CHAT_TOOL_CALL_PARSER_H_
