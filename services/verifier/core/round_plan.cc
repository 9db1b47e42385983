#include "services/verifier/core/round_plan.h"

#include <algorithm>
#include <vector>

#include "absl/types/span.h"

namespace foretoken::verifier {

void LayOutRows(const RoundLimits& limits, TokenId last_token,
                PendingRound& round) {
  const TokenTree& tree = round.request.tree;
  const absl::Span<const TokenId> tokens = tree.tokens();
  const absl::Span<const int32_t> parents = tree.parents();
  round.kept_nodes.clear();
  round.row_tokens = {last_token};
  round.row_parents = {kRootParent};
  round.row_of_node.assign(tree.size(), -1);
  round.max_draft_depth = 0;
  // A path of d drafts commits d + 1 tokens.
  const int64_t deepest_draft =
      limits.drafts ? limits.max_length - round.request.length - 1 : 0;
  const int64_t deepest_row = limits.max_positions - round.request.length;
  std::vector<int32_t> depth(tree.size());
  for (int32_t node = 0; node < tree.size(); ++node) {
    const int32_t parent = parents[node];
    const bool is_probe = tree.is_probe(node);
    depth[node] = parent == kRootParent ? 1 : depth[parent] + 1;
    // A node whose parent has no row has no row either: its context would be
    // missing.
    const int32_t parent_row =
        parent == kRootParent ? 0 : round.row_of_node[parent];
    if (parent_row < 0 || tokens[node] >= limits.vocab_size ||
        depth[node] > deepest_row ||
        (!is_probe && depth[node] > deepest_draft) ||
        round.rows() >= limits.max_rows) {
      continue;
    }
    round.row_of_node[node] = round.rows();
    round.kept_nodes.push_back(node);
    round.row_tokens.push_back(tokens[node]);
    round.row_parents.push_back(parent_row);
    if (!is_probe) {
      round.max_draft_depth = std::max(round.max_draft_depth, depth[node]);
    }
  }
}

}  // namespace foretoken::verifier
