#include "common/drafting/rest/rest_drafter.h"

#include <algorithm>

namespace foretoken {

void RestDrafter::Draft(int max_nodes, DraftTree& tree) {
  tree.Clear();
  const absl::Span<const TokenId> tail = tail_.tokens();
  for (int n = static_cast<int>(tail.size()); n >= options_.min_n; --n) {
    RestStore::Range hits = store_->Find(tail.last(n));
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
    return found_.FillDraft(max_nodes, tree);
  }
}

}  // namespace foretoken
