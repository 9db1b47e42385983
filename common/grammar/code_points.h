// CodePointSet: sets of Unicode scalar values, and the expressions over bytes
// that match one of them.
//
// Pure; thread-compatible.
#ifndef FORETOKEN_COMMON_GRAMMAR_CODE_POINTS_H_
#define FORETOKEN_COMMON_GRAMMAR_CODE_POINTS_H_

#include <cstdint>
#include <vector>

#include "common/grammar/regex.h"
#include "common/grammar/regex_syntax.h"

namespace foretoken::grammar {

inline constexpr uint32_t kMaxCodePoint = 0x10FFFF;

constexpr bool IsSurrogate(uint32_t code_point) {
  return code_point >= 0xD800 && code_point <= 0xDFFF;
}

class CodePointSet {
 public:
  struct Range {
    uint32_t first = 0;
    uint32_t last = 0;
    bool operator==(const Range&) const = default;
  };

  static CodePointSet Any() {
    CodePointSet set;
    set.Add(0, kMaxCodePoint);
    return set;
  }

  // first <= last <= kMaxCodePoint. Surrogates may be added; they are never
  // part of the set.
  void Add(uint32_t first, uint32_t last) { ranges_.push_back({first, last}); }
  void Add(uint32_t code_point) { Add(code_point, code_point); }
  void Add(const CodePointSet& other) {
    ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  }

  // Ascending, disjoint, not adjacent, without surrogates.
  std::vector<Range> Ranges() const;
  // Every scalar value that is not in the set.
  CodePointSet Negated() const;

 private:
  std::vector<Range> ranges_;  // as they were added
};

// One code point of the set, in the given form.
Expr CodePointClass(const CodePointSet& set, TextForm form, Regexes& regexes);

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_CODE_POINTS_H_
