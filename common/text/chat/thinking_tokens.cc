#include "common/text/chat/thinking_tokens.h"

#include <string>

namespace foretoken {

// Counts an incomplete character with its first token: the next one begins
// after it.
int64_t ThinkingTokens::BytesOf(TokenId id) {
  for (const auto& [control, spelling] : controls_) {
    if (control == id) return static_cast<int64_t>(spelling.size());
  }
  const auto pending = [&] {
    return static_cast<int64_t>(detokenizer_.pending().size());
  };
  const int64_t before = pending();
  std::string text;
  // An id that the vocabulary lacks has no text.
  detokenizer_.Push(id, text).IgnoreError();
  return static_cast<int64_t>(text.size()) + pending() - before;
}

// Tokens and their text may come with different deltas, in either order.
void ThinkingTokens::Take(absl::Span<const TokenId> ids) {
  const bool ended = splitter_.ended();
  const int64_t end = splitter_.thinking_bytes();
  for (const TokenId id : ids) {
    if (ended && bytes_ >= end) break;  // as will be all later ones
    if (undecided_.empty() || undecided_.back().start < bytes_) {
      undecided_.push_back({bytes_});
    }
    ++undecided_.back().tokens;
    bytes_ += BytesOf(id);
  }
  while (!undecided_.empty() && undecided_.front().start < end) {
    count_ += undecided_.front().tokens;
    undecided_.pop_front();
  }
  if (ended) undecided_.clear();
}

void ThinkingTokens::Finish() {
  Take({});  // a control token may have come last
  if (!splitter_.inside()) return;
  for (const Place& place : undecided_) count_ += place.tokens;
  undecided_.clear();
}

}  // namespace foretoken
