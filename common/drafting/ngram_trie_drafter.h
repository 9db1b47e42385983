// The drafter `ngram_trie`: a context trie per request.
//
// As published (learn = false) the trie holds the prompt and is not touched
// during decoding; with learn = true committed tokens are inserted as they
// come. No state outlives a request. Owned by one thread.
//
// Source: Algorithm 1 of Chen et al., "Faster In-Context Learning for LLMs via
// N-Gram Trie Speculative Decoding" (EMNLP 2025).
#ifndef FORETOKEN_COMMON_DRAFTING_NGRAM_TRIE_DRAFTER_H_
#define FORETOKEN_COMMON_DRAFTING_NGRAM_TRIE_DRAFTER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/drafting/drafter.h"
#include "common/drafting/ngram_trie.h"

namespace foretoken {

struct NgramTrieOptions {
  static constexpr int kMaxDraft = 1024;

  int n = 13;             // longest n-gram counted, 2..NgramTrie::kMaxN
  int longest_match = 3;  // L_p, 1..n-1
  int num_draft = 32;     // nodes in a draft, 1..kMaxDraft
  bool learn = false;     // insert committed tokens too
  int64_t max_tokens = int64_t{1} << 17;  // window of the trie
};

class NgramTrieDrafter final : public Drafter {
 public:
  explicit NgramTrieDrafter(const NgramTrieOptions& options);

  void StartRequest(absl::Span<const TokenId> prompt) override;
  void Commit(absl::Span<const TokenId> tokens) override;
  void Draft(int max_nodes, DraftTree& tree) override;
  size_t RequestBytes() const override { return trie_.MemoryBytes(); }

 private:
  void AppendToTail(TokenId token);

  const NgramTrieOptions options_;
  NgramTrie trie_;
  std::vector<TokenId> tail_;  // the last longest_match tokens, oldest first
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_NGRAM_TRIE_DRAFTER_H_
