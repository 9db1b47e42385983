// Constraint: what the text of a request must be, as its source.
//
// It travels with the request as the client wrote it; every process that needs
// the grammar compiles it (compile.h).
#ifndef FORETOKEN_COMMON_GRAMMAR_CONSTRAINT_H_
#define FORETOKEN_COMMON_GRAMMAR_CONSTRAINT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace foretoken {

// Text that a model may write before its constrained text: any, between two
// tags, and white space around them. An answer that does not begin so is
// constrained from its beginning.
struct Thinking {
  static constexpr size_t kMaxTagBytes = 64;

  // Text, or the special token of this name, whose spelling is another text.
  struct Tag {
    std::string text;
    bool is_control = false;
    bool operator==(const Tag&) const = default;
  };
  Tag open;
  Tag close;
  // The prompt ends inside the thinking: there is no opening tag, and the
  // closing one is required.
  bool opened = false;

  bool empty() const { return close.text.empty(); }
  bool operator==(const Thinking&) const = default;
};

struct Constraint {
  enum class Kind : uint8_t {
    kNone,
    kJsonSchema,  // source: a JSON Schema
    kJsonObject,  // any JSON object
    kRegex,       // source: a regular expression, of the whole text
    kGrammar,     // source: GBNF, rule `root`
    kChoice,      // one of `choices`
    kToolCalls,   // source: JSON, see grammar/tool_calls.h
    // source: JSON, see grammar/structural_tag.h
    kStructuralTag,
  };
  Kind kind = Kind::kNone;
  std::string source;
  std::vector<std::string> choices;
  Thinking thinking = {};  // see grammar/thinking.h; empty: none

  bool empty() const { return kind == Kind::kNone; }
  // The size of the source, all choices and the tags.
  size_t bytes() const {
    size_t bytes =
        source.size() + thinking.open.text.size() + thinking.close.text.size();
    for (const std::string& choice : choices) bytes += choice.size();
    return bytes;
  }
  bool operator==(const Constraint&) const = default;
};

// Whether white space after the closing tag belongs to the constrained text,
// which then follows the tag directly: where the text may have to begin with
// some.
inline bool KeepsSpaceAfterThinking(const Constraint& constraint) {
  constexpr char kSpaces[] = " \t\n\r";
  const auto begins_with_space = [&](const std::string& choice) {
    return choice.find_first_of(kSpaces) == 0;
  };
  return constraint.kind == Constraint::Kind::kGrammar ||
         constraint.kind == Constraint::Kind::kStructuralTag ||
         std::any_of(constraint.choices.begin(), constraint.choices.end(),
                     begins_with_space);
}

// Changes with every change of what a constraint allows: processes that work
// on one request must agree on it.
inline constexpr int32_t kGrammarVersion = 3;

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_GRAMMAR_CONSTRAINT_H_
