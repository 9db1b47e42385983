#include "common/grammar/code_points.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/grammar/byte_set.h"
#include "common/grammar/regex.h"

namespace foretoken::grammar {
namespace {

using Range = CodePointSet::Range;

ByteSet OneByte(uint8_t byte) { return ByteSet::Range(byte, byte); }

// Bytes grouped by what must follow them: characters that share all but one
// byte become one byte set, so that the expression is as small as the DFA.
class ByTail {
 public:
  void Add(uint8_t byte, Expr tail) {
    for (auto& [known, bytes] : groups_) {
      if (known == tail) return bytes.Add(byte);
    }
    groups_.push_back({tail, OneByte(byte)});
  }

  Expr Build(Regexes& regexes) const {
    std::vector<Expr> parts;
    parts.reserve(groups_.size());
    for (const auto& [tail, bytes] : groups_) {
      parts.push_back(regexes.Concat(regexes.Bytes(bytes), tail));
    }
    return regexes.Or(parts);
  }

 private:
  std::vector<std::pair<Expr, ByteSet>> groups_;
};

// The part of `ranges` (ascending, disjoint) within first..last.
std::vector<Range> Clip(absl::Span<const Range> ranges, uint32_t first,
                        uint32_t last) {
  auto it = std::lower_bound(
      ranges.begin(), ranges.end(), first,
      [](const Range& range, uint32_t value) { return range.last < value; });
  std::vector<Range> clipped;
  for (; it != ranges.end() && it->first <= last; ++it) {
    clipped.push_back({std::max(it->first, first), std::min(it->last, last)});
  }
  return clipped;
}

// The last `count` bytes of the characters in `ranges`, all of which lie within
// 64^count code points from `base` on.
Expr Continuation(absl::Span<const Range> ranges, uint32_t base, int count,
                  Regexes& regexes) {
  if (count == 0) return Regexes::kEmpty;
  const uint32_t size = uint32_t{1} << (6 * count);
  // A whole block needs no look at its digits.
  if (ranges.size() == 1 && ranges[0].first == base &&
      ranges[0].last == base + size - 1) {
    const Expr byte = regexes.Bytes(ByteSet::Range(0x80, 0xBF));
    return regexes.Concat(std::vector<Expr>(count, byte));
  }
  ByTail by_tail;
  const uint32_t step = size >> 6;
  for (uint32_t digit = 0; digit < 64; ++digit) {
    const uint32_t first = base + digit * step;
    const std::vector<Range> part = Clip(ranges, first, first + step - 1);
    if (part.empty()) continue;
    by_tail.Add(static_cast<uint8_t>(0x80 | digit),
                Continuation(part, first, count - 1, regexes));
  }
  return by_tail.Build(regexes);
}

Expr Utf8Class(absl::Span<const Range> ranges, Regexes& regexes) {
  // Characters of `count` + 1 bytes: how the first byte begins, and the code
  // points that are encoded so.
  struct Length {
    int count;
    uint32_t lead;
    uint32_t first, last;
  };
  static constexpr Length kLengths[] = {{0, 0x00, 0x00, 0x7F},
                                        {1, 0xC0, 0x80, 0x7FF},
                                        {2, 0xE0, 0x800, 0xFFFF},
                                        {3, 0xF0, 0x10000, kMaxCodePoint}};
  ByTail by_tail;
  for (const Length& length : kLengths) {
    const int shift = 6 * length.count;
    const std::vector<Range> part = Clip(ranges, length.first, length.last);
    for (uint32_t lead = length.first >> shift; lead <= length.last >> shift;
         ++lead) {
      const uint32_t first = lead << shift;
      const std::vector<Range> below =
          Clip(part, first, first + (uint32_t{1} << shift) - 1);
      if (below.empty()) continue;
      by_tail.Add(static_cast<uint8_t>(length.lead | lead),
                  Continuation(below, first, length.count, regexes));
    }
  }
  return by_tail.Build(regexes);
}

// The second and later bytes of the escapes of `ranges`, all of which must be
// escaped in JSON: controls below 0x20, quote and backslash.
Expr JsonEscapes(absl::Span<const Range> ranges, Regexes& regexes) {
  static constexpr std::pair<uint32_t, char> kShort[] = {
      {'\b', 'b'}, {'\t', 't'}, {'\n', 'n'}, {'\f', 'f'},
      {'\r', 'r'}, {'"', '"'},  {'\\', '\\'}};
  ByTail by_tail;
  ByTail high_digit;  // of \u00XX
  ByteSet low_digits[2];
  for (const Range& range : ranges) {
    for (uint32_t c = range.first; c <= range.last; ++c) {
      const auto* found =
          std::find_if(std::begin(kShort), std::end(kShort),
                       [&](const auto& entry) { return entry.first == c; });
      if (found != std::end(kShort)) {
        by_tail.Add(static_cast<uint8_t>(found->second), Regexes::kEmpty);
        continue;
      }
      ByteSet& digits = low_digits[c >> 4];
      // Both cases of the hexadecimal digits are valid JSON.
      digits.Add(static_cast<uint8_t>("0123456789abcdef"[c & 15]));
      digits.Add(static_cast<uint8_t>("0123456789ABCDEF"[c & 15]));
    }
  }
  for (int high = 0; high < 2; ++high) {
    if (low_digits[high].empty()) continue;
    high_digit.Add(static_cast<uint8_t>('0' + high),
                   regexes.Bytes(low_digits[high]));
  }
  const Expr digits = high_digit.Build(regexes);
  if (digits != Regexes::kNothing) {
    by_tail.Add('u', regexes.Concat(regexes.Literal("00"), digits));
  }
  return by_tail.Build(regexes);
}

}  // namespace

std::vector<Range> CodePointSet::Ranges() const {
  std::vector<Range> sorted;
  sorted.reserve(ranges_.size());
  for (const Range& range : ranges_) {
    // Surrogates are no characters and have no UTF-8.
    if (range.first < 0xD800) {
      sorted.push_back({range.first, std::min(range.last, uint32_t{0xD7FF})});
    }
    if (range.last > 0xDFFF) {
      sorted.push_back({std::max(range.first, uint32_t{0xE000}), range.last});
    }
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const Range& a, const Range& b) { return a.first < b.first; });
  std::vector<Range> merged;
  for (const Range& range : sorted) {
    // Adjacent ranges become one, so that Negated leaves no empty gaps.
    if (!merged.empty() && range.first <= merged.back().last + 1) {
      merged.back().last = std::max(merged.back().last, range.last);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

CodePointSet CodePointSet::Negated() const {
  CodePointSet negated;
  uint32_t next = 0;
  for (const Range& range : Ranges()) {
    if (range.first > next) negated.Add(next, range.first - 1);
    next = range.last + 1;
  }
  if (next <= kMaxCodePoint) negated.Add(next, kMaxCodePoint);
  return negated;
}

Expr CodePointClass(const CodePointSet& set, TextForm form, Regexes& regexes) {
  const std::vector<Range> ranges = set.Ranges();
  if (form == TextForm::kUtf8) return Utf8Class(ranges, regexes);
  std::vector<Range> plain;
  std::vector<Range> escaped;
  // JSON escapes controls, the quote and the backslash; all else may stand for
  // itself.
  static constexpr Range kPlain[] = {
      {0x20, 0x21}, {0x23, 0x5B}, {0x5D, kMaxCodePoint}};
  static constexpr Range kEscaped[] = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  for (const Range& range : kPlain) {
    const std::vector<Range> part = Clip(ranges, range.first, range.last);
    plain.insert(plain.end(), part.begin(), part.end());
  }
  for (const Range& range : kEscaped) {
    const std::vector<Range> part = Clip(ranges, range.first, range.last);
    escaped.insert(escaped.end(), part.begin(), part.end());
  }
  return regexes.Or(Utf8Class(plain, regexes),
                    regexes.Concat(regexes.Bytes(OneByte('\\')),
                                   JsonEscapes(escaped, regexes)));
}

}  // namespace foretoken::grammar
