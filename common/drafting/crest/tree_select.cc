#include "common/drafting/crest/tree_select.h"

#include <algorithm>
#include <cstdint>

namespace foretoken {

void TreeSelector::CutToPathSum(int max_path_sum, CrestTree& tree) {
  const int n = tree.size();
  depths_.assign(n, 1);
  kept_.assign(n, 1);  // first: is a leaf
  for (int i = 0; i < n; ++i) {
    if (tree.parents[i] == kRootParent) continue;
    depths_[i] = depths_[tree.parents[i]] + 1;
    kept_[tree.parents[i]] = 0;
  }
  leaves_.clear();
  int path_sum = 0;
  for (int i = 0; i < n; ++i) {
    if (!kept_[i]) continue;
    leaves_.push_back(i);
    path_sum += depths_[i];
  }
  // Longest first; among equals the one that was taken last.
  std::sort(leaves_.begin(), leaves_.end(), [&](int32_t a, int32_t b) {
    return depths_[a] != depths_[b] ? depths_[a] > depths_[b] : a > b;
  });
  size_t dropped = 0;
  while (path_sum > max_path_sum && dropped < leaves_.size()) {
    path_sum -= depths_[leaves_[dropped++]];
  }
  std::fill(kept_.begin(), kept_.end(), 0);
  for (size_t k = dropped; k < leaves_.size(); ++k) {
    for (int32_t i = leaves_[k]; i != kRootParent && !kept_[i];
         i = tree.parents[i]) {
      kept_[i] = 1;
    }
  }
  renumbered_.assign(n, kRootParent);
  int size = 0;
  for (int i = 0; i < n; ++i) {
    if (!kept_[i]) continue;
    const int32_t parent = tree.parents[i];
    tree.tokens[size] = tree.tokens[i];
    tree.counts[size] = tree.counts[i];
    tree.parents[size] =
        parent == kRootParent ? kRootParent : renumbered_[parent];
    renumbered_[i] = size++;
  }
  tree.tokens.resize(size);
  tree.parents.resize(size);
  tree.counts.resize(size);
}

}  // namespace foretoken
