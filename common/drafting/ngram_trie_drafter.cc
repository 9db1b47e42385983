#include "common/drafting/ngram_trie_drafter.h"

#include <algorithm>

#include "common/base/check.h"

namespace foretoken {

NgramTrieDrafter::NgramTrieDrafter(const NgramTrieOptions& options)
    : options_(options),
      trie_(options.n, options.max_tokens),
      tail_(options.longest_match) {
  FORETOKEN_CHECK(options.longest_match >= 1 &&
                  options.longest_match < options.n);
  FORETOKEN_CHECK(options.num_draft >= 1 &&
                  options.num_draft <= NgramTrieOptions::kMaxDraft);
}

void NgramTrieDrafter::StartRequest(absl::Span<const TokenId> prompt) {
  trie_.Clear(static_cast<int64_t>(prompt.size()));
  for (const TokenId token : prompt) trie_.Insert(token);
  tail_.Reset(prompt);
}

void NgramTrieDrafter::Commit(absl::Span<const TokenId> tokens) {
  if (options_.learn) {
    for (const TokenId token : tokens) trie_.Insert(token);
  }
  tail_.Append(tokens);
}

void NgramTrieDrafter::Draft(int max_nodes, DraftTree& tree) {
  tree.Clear();
  trie_.Draft(tail_.tokens(), options_.longest_match,
              std::min(max_nodes, options_.num_draft), tree);
}

}  // namespace foretoken
