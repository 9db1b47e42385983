// Prompt lookup: a chain copied from an earlier occurrence of the last tokens.
//
// For n = max_n down to 1: finds the last n committed tokens earlier in prompt
// and output; the first occurrence wins (or the latest, by option); the draft
// is the up to `tokens` tokens that followed it.
//
// The context is never scanned: every n-gram is indexed once, as soon as its
// continuation is known, as one 4-byte position per n. A draft costs max_n hash
// look-ups, however long the context is.
//
// Source: Saxena 2023, "Prompt Lookup Decoding".
// Owned by one thread.
#ifndef FORETOKEN_COMMON_DRAFTING_PROMPT_LOOKUP_H_
#define FORETOKEN_COMMON_DRAFTING_PROMPT_LOOKUP_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/drafting/drafter.h"
#include "common/drafting/token_tail.h"
#include "common/speculation/modes.h"

namespace foretoken {

class PromptLookupDrafter final : public Drafter {
 public:
  explicit PromptLookupDrafter(const PromptLookupOptions& options);

  void StartRequest(absl::Span<const TokenId> prompt) override;
  void Commit(absl::Span<const TokenId> tokens) override;
  void Draft(int max_nodes, DraftTree& tree) override;
  size_t RequestBytes() const override;

 private:
  // Open addressing over the ends of n-grams (index of the last token). The
  // n-gram itself is read from context_, so a hit is never a hash collision.
  struct Index {
    std::vector<int32_t> slots;  // power of two, -1 is free
    int32_t used = 0;
  };

  size_t Slot(const Index& index, int n, const TokenId* ngram) const;
  void IndexNgramEndingAt(int32_t end);
  void Grow(Index& index, int n, size_t slots);

  const PromptLookupOptions options_;
  std::vector<TokenId> context_;
  TokenTail tail_;              // max_n tokens
  std::vector<Index> indices_;  // [max_n], for n = 1..max_n
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_PROMPT_LOOKUP_H_
