// TreeBuilder: merges the drafts of several drafters into one token tree.
//
// Trees are merged by path: equal siblings become one row, which records all
// its proposers. Draft wins over probe. A row's estimate is the highest of its
// proposers'; that proposer is credited if the row is accepted. Then the best
// rows that fit the budget are taken: estimates never rise along a path, so
// taking rows best first keeps every path whole.
//
// In the built tree draft rows come before probe rows, so that nodes
// 0 .. draft_nodes-1 are a tree by themselves.
//
// Source: SpecInfer, arXiv:2305.09781, "Merge-based speculation"; probe rows
// are what Lookahead Decoding, arXiv:2402.02057, calls its lookahead branch.
// Owned by one thread.
#ifndef FORETOKEN_COMMON_SPECULATION_TREE_BUILDER_H_
#define FORETOKEN_COMMON_SPECULATION_TREE_BUILDER_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/speculation/drafter_id.h"
#include "common/speculation/token_tree.h"

namespace foretoken {

// Bit p is set for proposer p; lower ones win ties.
using ProposerSet = uint32_t;
inline constexpr int kMaxProposer = 31;

// One drafter's answer, borrowed. Parents precede children; -1 is the
// last committed token.
struct ProposedTree {
  int proposer = 0;  // 0..kMaxProposer
  absl::Span<const TokenId> tokens;
  absl::Span<const int32_t> parents;
  // Estimated probability that the whole path to the node is accepted, 0..1;
  // capped at the parent's. Empty: unknown, counts as 0.
  absl::Span<const float> probs;
  // Nodes that are read but never accepted, ascending. Children of a probe must
  // be probes too.
  absl::Span<const int32_t> probes;
  // The part of the drafter that each node comes from; empty: no parts.
  absl::Span<const DrafterId> parts = {};
};

struct MergedTree {
  TokenTree tree;
  int draft_nodes = 0;                 // nodes 0..draft_nodes-1; then probes
  std::vector<ProposerSet> proposers;  // [tree.size()]
  std::vector<int> credited;           // [tree.size()], highest estimate
  std::vector<DrafterId> parts;        // [tree.size()], of the credited one;
                                       // kTarget where it has no parts
  std::vector<float> probs;            // [tree.size()], that estimate
};

class TreeBuilder {
 public:
  // Merges `proposed`, which must be valid: trees from outside the process are
  // checked on arrival.
  void Add(const ProposedTree& proposed);

  // The best tree of at most `max_draft_nodes` draft nodes and `max_nodes` in
  // total. If space is short, probes are dropped first, the latest of them
  // first. Ties go to the node that was added first.
  MergedTree Build(int max_draft_nodes, int max_nodes) const;

  void Clear();
  int size() const { return static_cast<int>(nodes_.size()); }

 private:
  struct Node {
    TokenId token;
    int32_t parent;  // index into nodes_, or kRootParent
    ProposerSet proposers;
    int credited;
    DrafterId part;  // of the credited one
    float prob;
    bool probe;
  };

  void Propose(Node& node, int proposer, DrafterId part, float prob,
               bool probe);

  std::vector<Node> nodes_;
  absl::flat_hash_map<uint64_t, int32_t> children_;  // (parent, token): node
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_SPECULATION_TREE_BUILDER_H_
