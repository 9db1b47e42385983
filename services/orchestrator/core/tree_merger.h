// TreeMerger: the answers of a round's drafters as one token tree, cut to what
// the round may commit.
//
// A node outside the vocabulary or deeper than the request has room for is left
// out with all that hangs on it; an answer that is no tree is left out whole.
// Merging and the node budget are TreeBuilder's.
//
// Owned by one thread; buffers are reused between rounds.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_TREE_MERGER_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_TREE_MERGER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/drafting/drafter.h"
#include "common/spec/tree_builder.h"

namespace foretoken::orchestrator {

class TreeMerger {
 public:
  TreeMerger(int32_t vocab_size, int32_t max_nodes)
      : vocab_size_(vocab_size), max_nodes_(max_nodes), builder_(vocab_size) {}

  // `drafts[i]` is drafter i's answer (i <= kMaxProposer); depth 1 hangs on the
  // last committed token.
  MergedTree Merge(absl::Span<const DraftTree> drafts, int64_t max_depth);

 private:
  const int32_t vocab_size_;
  const int32_t max_nodes_;
  TreeBuilder builder_;
  DraftTree kept_;
  std::vector<int32_t> kept_index_;  // per node of a draft, -1: left out
  std::vector<int64_t> depth_;       // per kept node
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_TREE_MERGER_H_
