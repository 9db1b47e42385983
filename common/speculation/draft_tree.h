// DraftTree: draft tokens as a tree, with estimates: what drafters fill and a
// merge reads.
//
// Node i holds one draft token and a parent index. Parents should precede
// children, and equal siblings be one node, but the type promises nothing: the
// trees of other processes are checked as they arrive (rpc::ReadDraft), and a
// round checks all of its drafts (KeepUsable, tree_merger.h). A tree that is
// known to be whole is a TokenTree.
//
// All arrays are [size]. Thread-compatible.
#ifndef FORETOKEN_COMMON_SPECULATION_DRAFT_TREE_H_
#define FORETOKEN_COMMON_SPECULATION_DRAFT_TREE_H_

#include <cstdint>
#include <vector>

#include "common/base/types.h"
#include "common/speculation/drafter_id.h"

namespace foretoken {

// Bit p is set for proposer p of a merge; lower ones win ties.
using ProposerSet = uint32_t;
inline constexpr int kMaxProposer = 31;

// Reused between rounds, so that drafting does not allocate in the steady
// state.
struct DraftTree {
  std::vector<TokenId> tokens;
  std::vector<int32_t> parents;  // kRootParent: the last committed token
  std::vector<float> probs;      // estimated probability that the whole path to
                                 // this node is accepted, 0..1
  // The part of the drafter that proposed each node; empty if the drafter has
  // no parts.
  std::vector<DrafterId> parts;
  // Set by a merge, else empty: all proposers of each node, and the one with
  // the highest estimate, whose part (kTarget: it has none) and estimate the
  // node has.
  std::vector<ProposerSet> proposers;
  std::vector<int> credited;

  int size() const { return static_cast<int>(tokens.size()); }
  void Clear() {
    tokens.clear();
    parents.clear();
    probs.clear();
    parts.clear();
    proposers.clear();
    credited.clear();
  }
  bool operator==(const DraftTree&) const = default;
  // Returns the index of the new node.
  int32_t Add(TokenId token, int32_t parent, float prob) {
    tokens.push_back(token);
    parents.push_back(parent);
    probs.push_back(prob);
    return size() - 1;
  }
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_SPECULATION_DRAFT_TREE_H_
