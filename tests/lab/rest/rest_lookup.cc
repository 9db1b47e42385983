#include "tests/lab/rest/rest_lookup.h"

#include <algorithm>

namespace foretoken {

int RestLookup::Find(const RestStore& store, absl::Span<const TokenId> context,
                     int max_nodes, CrestTree& tree) {
  tree.Clear();
  const int longest = static_cast<int>(
      std::min<size_t>(context.size(), static_cast<size_t>(options_.max_n)));
  for (int n = longest; n >= options_.min_n; --n) {
    RestStore::Range hits = store.Find(context.last(n));
    if (hits.size() == 0) continue;
    // The first hits in suffix order: a biased sample, kept as published.
    if (!options_.exact) {
      hits.end = std::min(hits.end, hits.begin + options_.max_hits);
    }
    selector_.SelectBest(
        hits.begin, hits.end, options_.continuation, max_nodes,
        [&](int64_t i, int depth) { return store.TokenAt(i, n + depth); },
        tree);
    if (!options_.exact) selector_.CutToPathSum(max_nodes, tree);
    return n;
  }
  return 0;
}

}  // namespace foretoken
