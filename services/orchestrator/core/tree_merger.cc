#include "services/orchestrator/core/tree_merger.h"

#include "common/base/check.h"

namespace foretoken::orchestrator {

MergedTree TreeMerger::Merge(absl::Span<const DraftTree> drafts,
                             int64_t max_depth) {
  FORETOKEN_CHECK(drafts.size() <= static_cast<size_t>(kMaxProposer) + 1);
  builder_.Clear();
  for (size_t drafter = 0; drafter < drafts.size(); ++drafter) {
    const DraftTree& draft = drafts[drafter];
    kept_.Clear();
    kept_index_.assign(draft.size(), -1);
    depth_.clear();
    bool is_tree = true;
    for (int32_t i = 0; i < draft.size() && is_tree; ++i) {
      const int32_t parent = draft.parents[i];
      is_tree = parent >= kRootParent && parent < i;
      if (!is_tree) break;
      const bool at_root = parent == kRootParent;
      const TokenId token = draft.tokens[i];
      const int32_t above = at_root ? kRootParent : kept_index_[parent];
      if ((!at_root && above < 0) || token < 0 || token >= vocab_size_)
        continue;
      const int64_t depth = at_root ? 1 : depth_[above] + 1;
      if (depth > max_depth) continue;
      // Nonsense, NaN too, counts as 0.
      const float prob = draft.probs[i];
      kept_index_[i] =
          kept_.Add(token, above, prob >= 0.0f && prob <= 1.0f ? prob : 0.0f);
      depth_.push_back(depth);
    }
    if (!is_tree) continue;
    ProposedTree proposed;
    proposed.proposer = static_cast<int>(drafter);
    proposed.tokens = kept_.tokens;
    proposed.parents = kept_.parents;
    proposed.probs = kept_.probs;
    FORETOKEN_CHECK(builder_.Add(proposed).ok());  // checked above
  }
  return builder_.Build(max_nodes_, max_nodes_);
}

}  // namespace foretoken::orchestrator
