#include "common/drafting/ngram_trie_drafter.h"

#include <algorithm>

#include "common/base/check.h"

namespace foretoken {

NgramTrieDrafter::NgramTrieDrafter(const NgramTrieOptions& options)
    : options_(options), trie_(options.n, options.max_tokens) {
  FORETOKEN_CHECK(options.longest_match >= 1 &&
                  options.longest_match < options.n);
  FORETOKEN_CHECK(options.num_draft >= 1 &&
                  options.num_draft <= NgramTrieOptions::kMaxDraft);
}

void NgramTrieDrafter::AppendToTail(TokenId token) {
  if (tail_.size() == static_cast<size_t>(options_.longest_match)) {
    tail_.erase(tail_.begin());
  }
  tail_.push_back(token);
}

void NgramTrieDrafter::StartRequest(absl::Span<const TokenId> prompt) {
  trie_.Clear(static_cast<int64_t>(prompt.size()));
  tail_.clear();
  for (const TokenId token : prompt) {
    trie_.Insert(token);
    AppendToTail(token);
  }
}

void NgramTrieDrafter::Commit(absl::Span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    if (options_.learn) trie_.Insert(token);
    AppendToTail(token);
  }
}

void NgramTrieDrafter::Draft(int max_nodes, DraftTree& tree) {
  tree.Clear();
  trie_.Draft(tail_, options_.longest_match,
              std::min(max_nodes, options_.num_draft), tree);
}

}  // namespace foretoken
