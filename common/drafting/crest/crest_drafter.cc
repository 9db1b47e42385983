#include "common/drafting/crest/crest_drafter.h"

#include <algorithm>

namespace foretoken {

void CrestDrafter::StartRequest(absl::Span<const TokenId> prompt) {
  tail_.clear();
  Commit(prompt);
}

void CrestDrafter::Commit(absl::Span<const TokenId> tokens) {
  // A look-up reads at most kMaxCrestN tokens, so older ones are dropped.
  const size_t kept = std::min<size_t>(tokens.size(), kMaxCrestN);
  tail_.insert(tail_.end(), tokens.end() - kept, tokens.end());
  if (tail_.size() > kMaxCrestN) {
    tail_.erase(tail_.begin(), tail_.end() - kMaxCrestN);
  }
}

void CrestDrafter::Draft(int max_nodes, DraftTree& tree) {
  tree.Clear();
  const absl::StatusOr<int> n = source_->Lookup(tail_, found_);
  status_ = n.status();
  if (!n.ok()) {
    ++failed_lookups_;
    return;
  }
  if (*n == 0) return;
  // Estimate: the share of continuations that pass through the node.
  const float all = static_cast<float>(std::max(1u, found_.matches));
  // Parents come before children, so the first nodes are a tree of their own.
  const int nodes = std::min(max_nodes, found_.size());
  for (int i = 0; i < nodes; ++i) {
    tree.Add(found_.tokens[i], found_.parents[i],
             static_cast<float>(found_.counts[i]) / all);
  }
}

}  // namespace foretoken
