// CrestTail: the end of a text, as far as a look-up reads it.
// Thread-compatible.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_CREST_TAIL_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_CREST_TAIL_H_

#include <algorithm>
#include <vector>

#include "absl/types/span.h"
#include "common/base/types.h"

namespace foretoken {

class CrestTail {
 public:
  // n-grams are shorter.
  static constexpr size_t kMaxTokens = 16;

  explicit CrestTail(absl::Span<const TokenId> text) { Append(text); }

  void Append(absl::Span<const TokenId> tokens) {
    tokens.remove_prefix(tokens.size() - std::min(tokens.size(), kMaxTokens));
    tail_.insert(tail_.end(), tokens.begin(), tokens.end());
    if (tail_.size() > kMaxTokens) {
      tail_.erase(tail_.begin(), tail_.end() - kMaxTokens);
    }
  }

  const std::vector<TokenId>& tokens() const { return tail_; }

 private:
  std::vector<TokenId> tail_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_CREST_TAIL_H_
