// NgramCounts: all n-grams of a corpus up to a fixed length, as a sorted count
// trie. Static priors are built from it.
//
// Level n (1-based) lists the distinct n-grams in lexicographic order as
// parallel arrays; the continuations of one n-gram are contiguous in level n +
// 1.
//
// Thread-compatible.
#ifndef FORETOKEN_COMMON_DRAFTING_NGRAM_COUNTS_H_
#define FORETOKEN_COMMON_DRAFTING_NGRAM_COUNTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/types.h"

namespace foretoken {

// Separates two documents: no n-gram spans it.
inline constexpr TokenId kDocumentBorder = -1;

struct NgramLevel {
  std::vector<TokenId> tokens;       // last token of each n-gram
  std::vector<uint32_t> counts;      // occurrences
  std::vector<uint32_t> left_kinds;  // distinct tokens seen before it
  std::vector<uint32_t> parents;     // its first n-1 tokens, in level n-1
  std::vector<uint32_t> suffixes;    // its last n-1 tokens, in level n-1
  std::vector<uint32_t> children;    // first continuation in level n+1;
                                     // size() + 1 values; empty at the last

  size_t size() const { return tokens.size(); }
};

class NgramCounts {
 public:
  static constexpr int kMaxOrder = 6;

  // `corpus`: token ids and document borders. InvalidArgument for an id outside
  // 0..vocab_size-1 or an order outside 2..kMaxOrder; ResourceExhausted for a
  // corpus of 2^31 tokens or more.
  static absl::StatusOr<NgramCounts> Create(absl::Span<const TokenId> corpus,
                                            int order, int32_t vocab_size);

  int order() const { return static_cast<int>(levels_.size()); }
  int32_t vocab_size() const { return vocab_size_; }
  uint64_t corpus_tokens() const { return corpus_tokens_; }
  // 1 <= n <= order().
  const NgramLevel& level(int n) const { return levels_[n - 1]; }

 private:
  void AddSorted(absl::Span<const TokenId> corpus,
                 const std::vector<uint32_t>& positions, int order);
  void LinkSuffixes();
  void CountLeftKinds(absl::Span<const TokenId> corpus);

  int32_t vocab_size_ = 0;
  uint64_t corpus_tokens_ = 0;
  std::vector<NgramLevel> levels_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_NGRAM_COUNTS_H_
