// The token tree that follows an n-gram, with the counts that it was selected
// by.
//
// Nodes are in the order of selection, most frequent first and parents before
// children, so that the first k nodes are the best tree of size k.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_CREST_TREE_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_CREST_TREE_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/base/types.h"
#include "common/speculation/draft_tree.h"

namespace foretoken {

struct CrestTree {
  std::vector<TokenId> tokens;
  std::vector<int32_t> parents;  // < own index; kRootParent: after the n-gram
  std::vector<uint32_t> counts;  // continuations that pass through the node
  uint32_t matches = 0;          // continuations counted in total

  int size() const { return static_cast<int>(tokens.size()); }
  // Share of the continuations that pass through the node: an estimate of its
  // path probability, which never rises along a path.
  float Share(int node) const {
    return std::min(1.0f, static_cast<float>(counts[node]) /
                              static_cast<float>(std::max(1u, matches)));
  }
  // Replaces `draft` with the first `max_nodes` nodes. Parents precede
  // children, so they form a tree.
  void FillDraft(int max_nodes, DraftTree& draft) const {
    draft.Clear();
    const int nodes = std::min(max_nodes, size());
    for (int i = 0; i < nodes; ++i) draft.Add(tokens[i], parents[i], Share(i));
  }
  void Clear() {
    tokens.clear();
    parents.clear();
    counts.clear();
    matches = 0;
  }
  bool operator==(const CrestTree&) const = default;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_CREST_TREE_H_
