#include "common/drafting/rest/rest_drafter.h"

#include <algorithm>

namespace foretoken {

void RestDrafter::StartRequest(absl::Span<const TokenId> prompt) {
  tail_.clear();
  Commit(prompt);
}

void RestDrafter::Commit(absl::Span<const TokenId> tokens) {
  const size_t max_n = static_cast<size_t>(options_.max_n);
  const size_t kept = std::min(tokens.size(), max_n);
  tail_.insert(tail_.end(), tokens.end() - kept, tokens.end());
  if (tail_.size() > max_n) tail_.erase(tail_.begin(), tail_.end() - max_n);
}

void RestDrafter::Draft(int max_nodes, DraftTree& tree) {
  tree.Clear();
  for (int n = static_cast<int>(tail_.size()); n >= options_.min_n; --n) {
    RestStore::Range hits = store_->Find(absl::MakeConstSpan(tail_).last(n));
    if (hits.size() == 0) continue;
    // The first hits in suffix order: a biased sample, kept as published.
    if (!options_.exact) {
      hits.end = std::min(hits.end, hits.begin + options_.max_hits);
    }
    selector_.SelectBest(
        hits.begin, hits.end, options_.continuation, max_nodes,
        [&](int64_t i, int depth) { return store_->TokenAt(i, n + depth); },
        found_);
    if (!options_.exact) selector_.CutToPathSum(max_nodes, found_);
    const float all = static_cast<float>(found_.matches);
    for (int i = 0; i < found_.size(); ++i) {
      tree.Add(found_.tokens[i], found_.parents[i],
               static_cast<float>(found_.counts[i]) / all);
    }
    return;
  }
}

}  // namespace foretoken
