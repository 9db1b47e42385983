// Stop strings: finds the end of generated text while it is being generated.
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

  // InvalidArgument for a string that is empty, too long or not UTF-8 (by
  // index), or for more than kMaxStrings. Without strings, nothing ever stops.
  static absl::StatusOr<StopMatcher> Create(
      const std::vector<std::string>& stop_strings);

  // Consumes the next text and appends to `released` everything that can no
  // longer be part of a stop string. Returns true once a stop string is
  // complete; then all text before it has been released, and later calls
  // release nothing. The match is the stop string that completes first; the
  // longest, if several end together. How the text is split into calls makes no
  // difference.
  bool Push(absl::string_view text, std::string& released);

  // Ends the text: releases what was held back.
  void Flush(std::string& released);

  // Byte offset of the match within all text pushed.
  std::optional<uint64_t> match_begin() const { return match_begin_; }
  // The stop string that matched; empty before that.
  const std::string& match() const { return match_; }

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> fallback;  // longest border of each prefix
    size_t matched = 0;            // length of the prefix the text ends with
  };
  // Returns true if `byte` completes the pattern.
  static bool Advance(Pattern& pattern, char byte);

  std::vector<Pattern> patterns_;
  std::string held_;  // may be the beginning of a stop string
  uint64_t taken_bytes_ = 0;
  std::optional<uint64_t> match_begin_;
  std::string match_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_STOP_MATCHER_H_
