#include "common/text/chat/thinking_splitter.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/text/chat/json_scanner.h"

namespace foretoken {

ThinkingSplitter::ThinkingSplitter(const ThinkingTags& tags,
                                   const ThinkingOptions& options)
    : tags_(tags),
      options_(options),
      state_(options.opened ? State::kInside : State::kBefore),
      close_(tags.close) {}

// Looks at one byte at a time, so that it cannot depend on how the text is cut.
ThinkingSplitter::Parts ThinkingSplitter::Add(absl::string_view text) {
  while (!text.empty() && state_ != State::kContent) {
    Take(text.front());
    text.remove_prefix(1);
  }
  absl::StrAppend(&parts_.content, text);
  return std::exchange(parts_, {});
}

ThinkingSplitter::Parts ThinkingSplitter::AddTag(absl::string_view tag) {
  const bool begins =
      state_ == State::kBefore && opened_ == 0 && tag == tags_.open;
  if (begins || state_ == State::kInside) return Add(tag);
  if (state_ == State::kBefore) {
    parts_.content += std::exchange(held_, {});
    state_ = State::kContent;
  }
  return std::exchange(parts_, {});
}

ThinkingSplitter::Parts ThinkingSplitter::Finish() {
  if (state_ == State::kBefore) {
    parts_.content += held_;
  } else if (state_ == State::kInside && !options_.verbatim) {
    Think(close_.tag().substr(0, close_.matched()));
  }
  return std::exchange(parts_, {});
}

void ThinkingSplitter::Take(char c) {
  switch (state_) {
    case State::kBefore:
      return TakeBefore(c);
    case State::kInside:
      return TakeInside(c);
    case State::kBehind:
      if (IsJsonSpace(c)) return;
      state_ = State::kContent;
      [[fallthrough]];
    case State::kContent:
      parts_.content.push_back(c);
  }
}

void ThinkingSplitter::TakeBefore(char c) {
  held_.push_back(c);
  const bool may_follow = opened_ == 0 && IsJsonSpace(c)
                              ? held_.size() <= kMaxSpaces
                              : c == tags_.open[opened_];
  if (!may_follow) {
    parts_.content += std::exchange(held_, {});
    state_ = State::kContent;
    return;
  }
  if (!IsJsonSpace(c)) ++opened_;
  if (opened_ < tags_.open.size()) return;
  thinking_bytes_ = static_cast<int64_t>(held_.size());
  if (options_.verbatim) parts_.thinking = held_;
  held_.clear();
  state_ = State::kInside;
}

void ThinkingSplitter::TakeInside(char c) {
  ++thinking_bytes_;
  const size_t before = close_.matched();
  const bool closed = close_.Take(c);
  if (options_.verbatim) {
    parts_.thinking.push_back(c);
  } else if (!closed && close_.matched() != before + 1) {
    // A tag that had begun broke off; `c` may begin it anew.
    if (before > 0) Think(close_.tag().substr(0, before));
    if (close_.matched() > 0) return;
    if (!IsJsonSpace(c)) return Think(absl::string_view(&c, 1));
    if (!thought_) return;
    held_.push_back(c);
    if (held_.size() <= kMaxSpaces) return;
    parts_.thinking.push_back(held_.front());
    held_.erase(0, 1);
  }
  if (!closed) return;
  held_.clear();
  state_ = options_.verbatim || options_.keeps_space ? State::kContent
                                                     : State::kBehind;
}

// More of the thinking, with the white space that was held before it.
void ThinkingSplitter::Think(absl::string_view text) {
  thought_ = thought_ || !text.empty();
  absl::StrAppend(&parts_.thinking, std::exchange(held_, {}), text);
}

}  // namespace foretoken
