// Drafter `ngram_trie`: a context trie per request.
//
// As published (learn = false) the trie holds the prompt and does not change
// during decoding; with learn = true committed tokens are inserted too. No
// state outlives a request. Owned by one thread.
//
// Source: Algorithm 1 of Chen et al., "Faster In-Context Learning for LLMs via
// N-Gram Trie Speculative Decoding" (EMNLP 2025).
#ifndef FORETOKEN_COMMON_DRAFTING_NGRAM_TRIE_DRAFTER_H_
#define FORETOKEN_COMMON_DRAFTING_NGRAM_TRIE_DRAFTER_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "common/drafting/drafter.h"
#include "common/drafting/ngram_trie.h"
#include "common/drafting/token_tail.h"
#include "common/speculation/modes.h"

namespace foretoken {

class NgramTrieDrafter final : public Drafter {
 public:
  explicit NgramTrieDrafter(const NgramTrieOptions& options);

  void StartRequest(absl::Span<const TokenId> prompt) override;
  void Commit(absl::Span<const TokenId> tokens) override;
  void Draft(int max_nodes, DraftTree& tree) override;
  size_t RequestBytes() const override { return trie_.MemoryBytes(); }

 private:
  const NgramTrieOptions options_;
  NgramTrie trie_;
  TokenTail tail_;  // longest_match tokens
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_NGRAM_TRIE_DRAFTER_H_
