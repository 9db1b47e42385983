// TreeBuilder: merges the drafts of several drafters into one token tree.
//
// Trees are merged by path: equal siblings become one row, which records all
// its proposers. Draft wins over probe. A row's estimate is the highest of its
// proposers'; that proposer is credited if the row is accepted. Then the best
// rows that fit the budget are taken: estimates never rise along a path, so
// taking rows best first keeps every path whole.
//
// In the built tree draft rows come before probe rows, so that nodes
// 0 .. draft_nodes()-1 are a tree by themselves.
//
// Source: SpecInfer, arXiv:2305.09781, "Merge-based speculation"; probe rows
// are what Lookahead Decoding, arXiv:2402.02057, calls its lookahead branch.
// Owned by one thread; buffers are reused between rounds.
#ifndef FORETOKEN_COMMON_SPECULATION_TREE_BUILDER_H_
#define FORETOKEN_COMMON_SPECULATION_TREE_BUILDER_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/speculation/draft_tree.h"
#include "common/speculation/drafter_id.h"
#include "common/speculation/token_tree.h"

namespace foretoken {

class TreeBuilder {
 public:
  // Number of draft nodes to take, 0 or more, given the probabilities of the
  // likeliest in descending order.
  using Price = std::function<int(absl::Span<const float> probs)>;

  // Merges the draft of `proposer`, 0..kMaxProposer. `tree` must be valid:
  // trees from outside the process are checked on arrival. `probs` replaces
  // tree.probs: [tree.size()], each capped at the parent's; or empty: unknown,
  // counts as 0. `probes`: all its nodes are probes.
  void Add(int proposer, const DraftTree& tree, absl::Span<const float> probs,
           bool probes = false);

  // The best tree of at most `max_draft_nodes` draft nodes and `max_nodes` in
  // total, with proposers and estimates. If space is short, probes are dropped
  // first, the latest of them first. Ties go to the node that was added first.
  // `price` sees the draft nodes that fit, unless there are none, and may take
  // fewer; a null one takes all of them.
  TokenTree Build(int max_draft_nodes, int max_nodes,
                  const Price& price = nullptr);

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
  // Cuts drafts_ to the likeliest `count`; likeliest first if `in_order`, else
  // in any order.
  void KeepLikeliest(size_t count, bool in_order);

  std::vector<Node> nodes_;
  absl::flat_hash_map<uint64_t, int32_t> children_;  // (parent, token): node
  // Buffers of Add: the node and the capped estimate of each node of the draft.
  std::vector<int32_t> merged_;
  std::vector<float> capped_;
  // Buffers of Build: indices into nodes_, and their rows in the tree.
  std::vector<int32_t> drafts_;
  std::vector<int32_t> probes_;
  std::vector<int32_t> row_of_;
  std::vector<float> priced_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_SPECULATION_TREE_BUILDER_H_
