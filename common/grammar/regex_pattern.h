// Pattern: a regular expression in ECMA-262 notation, parsed into a tree over
// code points. regex_syntax.h turns it into an expression over bytes.
//
// Pure; thread-compatible.
#ifndef FORETOKEN_COMMON_GRAMMAR_REGEX_PATTERN_H_
#define FORETOKEN_COMMON_GRAMMAR_REGEX_PATTERN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/grammar/code_points.h"

namespace foretoken::grammar {

struct Pattern {
  // At most this many of quantifiers and groups within each other.
  static constexpr int kMaxDepth = 250;
  static constexpr int kMaxRepeat = 100'000;
  static constexpr size_t kMaxBytes = 64 << 10;
  static constexpr int32_t kUnbounded = -1;

  enum class Kind : uint8_t {
    kClass,         // one code point of `set`
    kConcat,        // the children one after the other; none: the empty text
    kAlternatives,  // one of the children
    kRepeat,        // the child min..max times
    kTextBegin,
    kTextEnd,
    kLookahead,  // the child can (`negative`: cannot) follow here
  };
  struct Node {
    Kind kind = Kind::kConcat;
    bool negative = false;
    // Whether there is a text begin or end, or a look-ahead, in it.
    bool anchored = false;
    bool lookahead = false;
    int32_t set = 0;  // in `sets`
    int32_t min = 0;
    int32_t max = 0;                // or kUnbounded
    int32_t at = 0;                 // byte position in the text
    std::vector<int32_t> children;  // in `nodes`, before this one
  };
  std::vector<Node> nodes;
  std::vector<CodePointSet> sets;
  int32_t root = 0;
};

// InvalidArgument says what is wrong or not supported, and at which byte.
absl::StatusOr<Pattern> ParsePattern(absl::string_view text);

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_REGEX_PATTERN_H_
