// TokenTail: the last tokens of a text that grows. Owned by one thread.
#ifndef FORETOKEN_COMMON_DRAFTING_TOKEN_TAIL_H_
#define FORETOKEN_COMMON_DRAFTING_TOKEN_TAIL_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "common/base/types.h"

namespace foretoken {

class TokenTail {
 public:
  // Keeps the last `max_tokens` tokens of `text` and of what is appended.
  explicit TokenTail(size_t max_tokens, absl::Span<const TokenId> text = {})
      : max_tokens_(max_tokens) {
    Append(text);
  }

  void Append(absl::Span<const TokenId> text) {
    text = text.last(std::min(text.size(), max_tokens_));
    const size_t kept = std::min(tail_.size(), max_tokens_ - text.size());
    tail_.erase(tail_.begin(), tail_.end() - kept);
    tail_.insert(tail_.end(), text.begin(), text.end());
  }
  void Push(TokenId token) { Append({&token, 1}); }

  // Starts over with the end of another text.
  void Reset(absl::Span<const TokenId> text = {}) {
    tail_.clear();
    Append(text);
  }

  bool full() const { return tail_.size() == max_tokens_; }
  const std::vector<TokenId>& tokens() const { return tail_; }  // oldest first

 private:
  size_t max_tokens_;
  std::vector<TokenId> tail_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_TOKEN_TAIL_H_
