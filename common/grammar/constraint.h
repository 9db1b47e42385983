// Constraint: what the text of a request must be, as its source.
//
// It travels with the request as the client wrote it; every process that needs
// the grammar compiles it (compile.h).
#ifndef FORETOKEN_COMMON_GRAMMAR_CONSTRAINT_H_
#define FORETOKEN_COMMON_GRAMMAR_CONSTRAINT_H_

#include <cstdint>
#include <string>
#include <vector>

namespace foretoken {

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

  bool empty() const { return kind == Kind::kNone; }
  // The size of the source and all choices.
  size_t bytes() const {
    size_t bytes = source.size();
    for (const std::string& choice : choices) bytes += choice.size();
    return bytes;
  }
  bool operator==(const Constraint&) const = default;
};

// Changes with every change of what a constraint allows: processes that work
// on one request must agree on it.
inline constexpr int32_t kGrammarVersion = 3;

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_GRAMMAR_CONSTRAINT_H_
