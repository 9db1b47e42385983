// REST's datastore: a token sequence and its suffix array.
//
// 6 bytes per token (2 + 4) for vocabularies of up to 65,536, else 8.
// Source: REST, arXiv:2311.08252, section 3.
// Thread-safe after construction.
#ifndef FORETOKEN_TESTS_LAB_REST_REST_STORE_H_
#define FORETOKEN_TESTS_LAB_REST_REST_STORE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/types.h"

namespace foretoken {

class RestStore {
 public:
  static constexpr int64_t kMaxTokens = INT32_MAX - 1;

  // InvalidArgument for no tokens, more than kMaxTokens, or a token outside the
  // vocabulary.
  static absl::Status CheckTokens(absl::Span<const TokenId> tokens,
                                  int32_t vocab_size);
  // Bytes of a store of so many tokens; building one takes about 13 per token
  // more.
  static uint64_t BytesFor(uint64_t tokens, int32_t vocab_size) {
    return tokens * (vocab_size <= kNarrowVocab ? 6 : 8);
  }
  // Errors as of CheckTokens.
  static absl::StatusOr<RestStore> Create(const std::vector<TokenId>& tokens,
                                          int32_t vocab_size);

  // Suffixes begin..end-1, in suffix order, all start with the pattern.
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t size() const { return end - begin; }
  };
  Range Find(absl::Span<const TokenId> pattern) const;

  // Returns token `offset` of suffix i, or -1 past the end of the store.
  TokenId TokenAt(int64_t i, int64_t offset) const {
    return Token(suffixes_[i] + offset);
  }

  int64_t size() const { return static_cast<int64_t>(suffixes_.size()); }
  size_t bytes() const {
    return narrow_.size() * 2 + wide_.size() * 4 + suffixes_.size() * 4;
  }

 private:
  // Largest vocabulary whose tokens take 16 bits.
  static constexpr int32_t kNarrowVocab = 0x10000;

  RestStore() = default;

  // The token at a position; -1 past the end of the store.
  TokenId Token(int64_t at) const {
    if (at >= size()) return -1;
    return narrow_.empty() ? wide_[at] : narrow_[at];
  }
  // Compares the suffix that begins at a position with the pattern: negative,
  // positive, or 0 if the suffix starts with it.
  int Compare(int64_t at, absl::Span<const TokenId> pattern) const;

  std::vector<uint16_t> narrow_;  // the tokens, in one of the two
  std::vector<TokenId> wide_;
  std::vector<int32_t> suffixes_;
};

}  // namespace foretoken

#endif  // FORETOKEN_TESTS_LAB_REST_REST_STORE_H_
