// TreeMerger: merges the answers of a round's drafters into one token tree, cut
// to what the round may commit and to nodes that are worth their rows.
//
// KeepUsable removes nodes from one answer that the round cannot use; Merge
// joins the rest by path and takes the likeliest nodes (TreeBuilder).
//
// Owned by one thread; buffers are reused between rounds.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_TREE_MERGER_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_TREE_MERGER_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/speculation/draft_tree.h"
#include "common/speculation/tree_builder.h"

namespace foretoken::orchestrator {

// Drops every node outside the vocabulary or deeper than `max_depth` with its
// descendants, and all beyond the first `max_nodes`; estimates outside 0..1
// become 0. False for an invalid tree (a parent that does not precede its
// child, arrays of different lengths), which is emptied: drafters in this
// process promise no more than services do, and a wrong one may cost speed
// only.
bool KeepUsable(int32_t vocab_size, int64_t max_depth, int32_t max_nodes,
                DraftTree& tree);

class TreeMerger {
 public:
  using Price = TreeBuilder::Price;

  struct Answer {
    const DraftTree* tree = nullptr;    // usable
    absl::Span<const float> probs;      // [tree->size()], of whole paths
    const DraftTree* window = nullptr;  // usable probe rows
  };

  explicit TreeMerger(const TreeLimits& limits) : limits_(limits) {}

  // `answers[i]` is proposer i's; depth 1 follows the last committed token.
  // A null `price` takes all that fit.
  TokenTree Merge(absl::Span<const Answer> answers, const Price& price);

 private:
  const TreeLimits limits_;
  TreeBuilder builder_;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_TREE_MERGER_H_
