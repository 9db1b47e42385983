#include "common/text/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/utf8.h"

namespace foretoken {

absl::StatusOr<StopMatcher> StopMatcher::Create(
    const std::vector<std::string>& stop_strings) {
  if (stop_strings.size() > kMaxStrings) {
    return absl::InvalidArgumentError(absl::StrCat(
        "stop: ", stop_strings.size(), " strings, want at most ", kMaxStrings));
  }
  StopMatcher matcher;
  for (size_t i = 0; i < stop_strings.size(); ++i) {
    const std::string& text = stop_strings[i];
    if (text.empty() || text.size() > kMaxStringBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "stop[", i, "]: ", text.size(), " bytes, want 1..", kMaxStringBytes));
    }
    if (!IsValidUtf8(text)) {
      return absl::InvalidArgumentError(
          absl::StrCat("stop[", i, "]: not UTF-8"));
    }
    Pattern pattern;
    pattern.text = text;
    pattern.fallback.assign(text.size() + 1, 0);
    // Failure function of Knuth, Morris and Pratt: fallback[n] is the length of
    // the longest proper prefix of text[0, n) that is also its suffix.
    size_t border = 0;
    for (size_t end = 2; end <= text.size(); ++end) {
      while (border > 0 && text[border] != text[end - 1]) {
        border = pattern.fallback[border];
      }
      if (text[border] == text[end - 1]) ++border;
      pattern.fallback[end] = border;
    }
    matcher.patterns_.push_back(std::move(pattern));
  }
  return matcher;
}

bool StopMatcher::Advance(Pattern& pattern, char byte) {
  size_t& matched = pattern.matched;
  // A complete match ends the search, so `matched` indexes inside the pattern.
  while (matched > 0 && pattern.text[matched] != byte) {
    matched = pattern.fallback[matched];
  }
  if (pattern.text[matched] == byte) ++matched;
  return matched == pattern.text.size();
}

bool StopMatcher::Push(absl::string_view text, std::string& released) {
  if (match_begin_.has_value()) return true;
  // Each pattern runs its own automaton, O(1) amortised per byte and pattern.
  // held_ ends with the longest suffix of the text that begins a stop string;
  // everything before it is released.
  size_t may_begin = 0;  // length of the suffix that may begin a stop string
  for (const char byte : text) {
    held_.push_back(byte);
    ++taken_bytes_;
    absl::string_view complete;
    may_begin = 0;
    // All patterns advance together; the longest partial match decides how much
    // text is held back.
    for (Pattern& pattern : patterns_) {
      if (Advance(pattern, byte) && pattern.text.size() > complete.size()) {
        complete = pattern.text;
      }
      may_begin = std::max(may_begin, pattern.matched);
    }
    if (!complete.empty()) {
      match_ = std::string(complete);
      match_begin_ = taken_bytes_ - complete.size();
      // If several strings end here, the longest begins first and decides where
      // the output ends.
      released.append(held_, 0, held_.size() - complete.size());
      held_.clear();
      return true;
    }
  }
  // An empty call computed no may_begin: keep everything held.
  if (!text.empty()) {
    released.append(held_, 0, held_.size() - may_begin);
    held_.erase(0, held_.size() - may_begin);
  }
  return false;
}

void StopMatcher::Flush(std::string& released) {
  released += held_;
  held_.clear();
  for (Pattern& pattern : patterns_) pattern.matched = 0;
}

}  // namespace foretoken
