// GbnfText: a grammar in llama.cpp's notation, parsed into trees over code
// points. gbnf.h adds it to a grammar.
//
// Pure; thread-compatible.
#ifndef FORETOKEN_COMMON_GRAMMAR_GBNF_SYNTAX_H_
#define FORETOKEN_COMMON_GRAMMAR_GBNF_SYNTAX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/grammar/code_points.h"

namespace foretoken::grammar {

struct GbnfText {
  static constexpr size_t kMaxBytes = 1 << 20;
  static constexpr int kMaxDepth = 250;       // groups within each other
  static constexpr int kMaxRepeat = 100'000;  // as in regular expressions
  static constexpr int32_t kUnbounded = -1;

  enum class Kind : uint8_t {
    kLiteral,       // texts[index]
    kClass,         // one code point of sets[index]
    kRule,          // rules[index]
    kConcat,        // the children one after the other; none: the empty text
    kAlternatives,  // one of the children
    kRepeat,        // the child min..max times
  };
  struct Node {
    Kind kind = Kind::kConcat;
    int32_t index = 0;
    int32_t min = 0;
    int32_t max = 0;                // or kUnbounded
    std::vector<int32_t> children;  // in `nodes`, before this one
  };
  struct Rule {
    std::string name;
    int32_t body = 0;  // in `nodes`
    // Nodes of the rule: first_node..body.
    int32_t first_node = 0;
  };
  std::vector<Node> nodes;
  std::vector<std::string> texts;  // UTF-8
  std::vector<CodePointSet> sets;
  std::vector<Rule> rules;
};

// Every rule that is used is defined once. InvalidArgument names the line and
// what is wrong.
absl::StatusOr<GbnfText> ParseGbnf(absl::string_view text);

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_GBNF_SYNTAX_H_
