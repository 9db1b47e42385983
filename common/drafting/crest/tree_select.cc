#include "common/drafting/crest/tree_select.h"

#include <algorithm>
#include <cstdint>

namespace foretoken {

void TreeSelector::CutToPathSum(int max_path_sum, CrestTree& tree) {
  const int n = tree.size();
  depths_.assign(n, 1);
  order_.resize(n);
  int path_sum = 0;
  for (int i = 0; i < n; ++i) {
    if (tree.parents[i] != kRootParent) {
      depths_[i] = depths_[tree.parents[i]] + 1;
    }
    path_sum += depths_[i];
    order_[i] = i;
  }
  // Longest first; among equals, the one selected last.
  std::sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
    return depths_[a] != depths_[b] ? depths_[a] > depths_[b] : a > b;
  });
  constexpr int32_t kDropped = -2;
  renumbered_.assign(n, 0);
  for (int k = 0; k < n && path_sum > max_path_sum; ++k) {
    path_sum -= depths_[order_[k]];
    renumbered_[order_[k]] = kDropped;
  }
  // Children are deeper than their parents, so no kept node has lost its
  // parent.
  int size = 0;
  for (int i = 0; i < n; ++i) {
    if (renumbered_[i] == kDropped) continue;
    const int32_t parent = tree.parents[i];
    tree.tokens[size] = tree.tokens[i];
    tree.counts[size] = tree.counts[i];
    tree.parents[size] =
        parent == kRootParent ? kRootParent : renumbered_[parent];
    // Nodes move towards the front only, so no node is overwritten before it
    // was read.
    renumbered_[i] = size++;
  }
  tree.tokens.resize(size);
  tree.parents.resize(size);
  tree.counts.resize(size);
}

}  // namespace foretoken
