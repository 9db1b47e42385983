#include "services/draft_worker/core/text_copy.h"

#include <algorithm>

namespace foretoken::draft_worker {

std::vector<TextCopy::Guess> TextCopy::After(absl::Span<const TokenId> path,
                                             size_t most) {
  std::vector<Guess> guesses;
  const size_t length = text_.size();
  text_.insert(text_.end(), path.begin(), path.end());
  // `next` follows an earlier occurrence of the last `longest` tokens.
  size_t next = 0;
  int longest = 0;
  for (size_t end = text_.size(); end-- > 1;) {
    int match = 0;
    // At most kMaxMatch tokens are compared at each place, so the search is
    // linear in the text.
    while (match < kMaxMatch && static_cast<size_t>(match) < end &&
           text_[end - 1 - match] == text_[text_.size() - 1 - match]) {
      ++match;
    }
    if (match > longest) {
      longest = match;
      next = end;
      if (longest == kMaxMatch) break;
    }
  }
  if (longest > 0) {
    // A guess may itself be copied, as in a text that repeats.
    while (guesses.size() < most) {
      const TokenId token = next < text_.size()
                                ? text_[next]
                                : guesses[next - text_.size()].token;
      guesses.push_back(
          {token,
           std::min(longest + static_cast<int>(guesses.size()), kMaxMatch)});
      ++next;
    }
  }
  // The text is as it was: `path` was added for the search alone.
  text_.resize(length);
  return guesses;
}

size_t TextCopy::ClassOf(int match) {
  static_assert(kBounds.size() + 1 == kPriors.size());
  return static_cast<size_t>(
      std::lower_bound(kBounds.begin(), kBounds.end(), match) -
      kBounds.begin());
}

float TextCopy::Chance(int match) const {
  const size_t at = ClassOf(match);
  return (classes_[at].right + kPriors[at] * kPriorGuesses) /
         (classes_[at].guesses + kPriorGuesses);
}

void TextCopy::Note(int match, bool right) {
  Class& known = classes_[ClassOf(match)];
  if (known.guesses >= kMemory) {
    known.guesses /= 2;
    known.right /= 2;
  }
  known.guesses += 1.0f;
  known.right += right ? 1.0f : 0.0f;
}

}  // namespace foretoken::draft_worker
