// TagMatcher: finds a tag in a text that comes byte by byte.
#ifndef FORETOKEN_COMMON_TEXT_CHAT_TAG_MATCHER_H_
#define FORETOKEN_COMMON_TEXT_CHAT_TAG_MATCHER_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace foretoken {

// Finds a tag whose first byte stands nowhere else in it: what breaks a match
// can only begin the next one.
class TagMatcher {
 public:
  explicit TagMatcher(absl::string_view tag) : tag_(tag) {}

  // True for the byte that completes the tag.
  bool Take(char c) {
    if (c != tag_[matched_]) {
      matched_ = c == tag_[0] ? 1 : 0;
      return false;
    }
    if (++matched_ < tag_.size()) return false;
    matched_ = 0;
    return true;
  }
  absl::string_view tag() const { return tag_; }
  // Bytes of the tag that were seen last.
  size_t matched() const { return matched_; }

 private:
  absl::string_view tag_;
  size_t matched_ = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_CHAT_TAG_MATCHER_H_
