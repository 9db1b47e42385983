// TextCursor: a place in a text that a recursive-descent parser reads.
#ifndef FORETOKEN_COMMON_GRAMMAR_TEXT_CURSOR_H_
#define FORETOKEN_COMMON_GRAMMAR_TEXT_CURSOR_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "common/text/utf8.h"

namespace foretoken::grammar {

class TextCursor {
 protected:
  // `text` must be UTF-8 by the time that code points are taken from it.
  explicit TextCursor(absl::string_view text) : text_(text) {}

  bool AtEnd() const { return at_ >= text_.size(); }
  bool Next(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool Skip(absl::string_view prefix) {
    if (!absl::StartsWith(text_.substr(at_), prefix)) return false;
    at_ += prefix.size();
    return true;
  }
  uint32_t TakeCodePoint() {
    const Utf8Step step = NextUtf8(text_.substr(at_));
    at_ += step.length;
    return step.code_point;
  }

  const absl::string_view text_;
  size_t at_ = 0;
};

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_TEXT_CURSOR_H_
