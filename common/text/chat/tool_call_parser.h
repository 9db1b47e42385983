// ToolCallParser: the text of an answer, as it streams in, as content and tool
// calls in the form of the OpenAI API's deltas.
//
// However the text is cut, the joined deltas are the same. Calls are of tools
// that the request offers and have arguments that are a JSON object; what only
// begins like that is content. Text is held back, at most kMaxHeldBytes of it,
// until a call is certain: when its arguments are whole or, if they are long,
// as far as they have come (ArgumentsReader). Those may break or end early:
// cut_off.
//
// Models also write calls as fenced blocks, whatever form their template
// teaches: these are read beside every form but kNone (FencedCalls), and hold
// back at most kMaxHeldBytes more. Where a grammar says what a call is, they
// are content: it covers the form alone.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_TEXT_CHAT_TOOL_CALL_PARSER_H_
#define FORETOKEN_COMMON_TEXT_CHAT_TOOL_CALL_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
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
  std::string arguments;      // piece of a JSON text
  size_t content_before = 0;  // bytes of its delta's content
};

struct AnswerDelta {
  std::string content;
  std::vector<ToolCallDelta> tool_calls;  // by content_before
  std::string reasoning;  // before the content; parsers of calls write none

  bool empty() const {
    return content.empty() && tool_calls.empty() && reasoning.empty();
  }
  // What comes after the reasoning, in the order of the answer: gives pieces of
  // the content, none of them empty, to on_text(absl::string_view) and calls to
  // on_call(const ToolCallDelta&).
  template <typename OnText, typename OnCall>
  void InOrder(OnText on_text, OnCall on_call) const {
    absl::string_view text = content;
    for (const ToolCallDelta& call : tool_calls) {
      const size_t given = content.size() - text.size();
      if (call.content_before > given) {
        on_text(text.substr(0, call.content_before - given));
        text.remove_prefix(call.content_before - given);
      }
      on_call(call);
    }
    if (!text.empty()) on_text(text);
  }
};

// Names of the tools that a request offers.
using ToolNames = std::set<std::string, std::less<>>;

class ToolCallParser {
 public:
  static constexpr size_t kMaxHeldBytes = size_t{64} << 10;
  static constexpr size_t kMaxNameBytes = 256;
  // Further ones are content.
  static constexpr int kMaxCalls = 128;
  // Whether fenced blocks may be calls.
  enum class Fences : uint8_t { kIgnored, kRead };

  // Ids of calls are drawn from `id_seed`: equal for equal seeds. `offered`
  // must outlive the parser.
  static std::unique_ptr<ToolCallParser> Create(ToolCallForm form,
                                                uint64_t id_seed,
                                                const ToolNames& offered,
                                                Fences fences = Fences::kRead);
  virtual ~ToolCallParser() = default;

  // The next text of the answer, control tokens spelled (SpelledControls);
  // returns what is certain.
  virtual AnswerDelta Add(absl::string_view text) = 0;
  // The end of the answer: returns what was held back. Once.
  virtual AnswerDelta Finish() = 0;
  // Calls so far; above 0 the answer's finish_reason is "tool_calls",
  virtual int calls() const = 0;
  // unless the arguments of one are not whole: then it is "length".
  bool cut_off() const { return whole_calls() < calls(); }
  // Calls before the first whose arguments are not whole.
  virtual int whole_calls() const = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_CHAT_TOOL_CALL_PARSER_H_
