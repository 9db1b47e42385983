// The token tree that follows an n-gram, with the counts that it was selected
// by.
//
// Nodes are in the order of selection, most frequent first and parents before
// children, so that the first k nodes are the best tree of size k.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_CREST_TREE_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_CREST_TREE_H_

#include <cstdint>
#include <vector>

#include "common/base/types.h"

namespace foretoken {

struct CrestTree {
  std::vector<TokenId> tokens;
  std::vector<int32_t> parents;  // < own index; kRootParent: after the n-gram
  std::vector<uint32_t> counts;  // continuations that pass through the node
  uint32_t matches = 0;          // continuations counted in total

  int size() const { return static_cast<int>(tokens.size()); }
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
