// Stop strings: finds where generated text must end, while it is generated.
//
// Source: Knuth, Morris, Pratt, "Fast Pattern Matching in Strings" (1977).
// Owned by one thread.
#ifndef FORETOKEN_COMMON_TEXT_STOP_MATCHER_H_
#define FORETOKEN_COMMON_TEXT_STOP_MATCHER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace foretoken {

class StopMatcher {
 public:
  static constexpr size_t kMaxStrings = 64;
  static constexpr size_t kMaxStringBytes = 1024;

  // InvalidArgument names the string that is empty, too long or not UTF-8, and
  // a count over kMaxStrings. No strings: nothing ever stops.
  static absl::StatusOr<StopMatcher> Create(
      const std::vector<std::string>& stop_strings);

  // Takes the next text and appends to `released` what can no longer be part
  // of a stop string. True once a stop string is complete: then all text before
  // it has been released, and nothing is ever after. The match is the one that
  // is complete first, the longest of those that end together; how the text is
  // cut into calls makes no difference.
  bool Push(absl::string_view text, std::string& released);

  // The text is at its end: releases what was held back.
  void Flush(std::string& released);

  // Where the match begins, in bytes of all text pushed.
  std::optional<uint64_t> match_begin() const { return match_begin_; }

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> fallback;  // of each prefix: its longest border
    size_t matched = 0;            // bytes that the text now ends with
  };
  // True if the pattern is complete with `byte`.
  static bool Advance(Pattern& pattern, char byte);

  std::vector<Pattern> patterns_;
  std::string held_;  // the text may end with a part of a stop string
  uint64_t taken_bytes_ = 0;
  std::optional<uint64_t> match_begin_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_STOP_MATCHER_H_
