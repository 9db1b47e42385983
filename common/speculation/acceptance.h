// The acceptance walk: finds the drafted path that the target agrees with.
//
// One walk serves every temperature: at temperature 0 the target's token of a
// row is its arg max, above 0 its position-keyed Gumbel sample; either way the
// row has exactly one token, and a draft is accepted when it equals it.
//
// Source: Leviathan et al., arXiv:2211.17192, section 2.3 (greedy case);
// SpecInfer, arXiv:2305.09781, "VerifyGreedy", for trees.
#ifndef FORETOKEN_COMMON_SPECULATION_ACCEPTANCE_H_
#define FORETOKEN_COMMON_SPECULATION_ACCEPTANCE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/speculation/token_tree.h"

namespace foretoken {

struct Acceptance {
  std::vector<int32_t> path;  // accepted nodes, root-first
  TokenId bonus_token = -1;   // the target's token after the last of them
};

// `target_tokens`: [tree.size() + 1], the target's token of row 0 (the last
// committed token) and of every node, so row i+1 belongs to node i. If siblings
// hold the same token, the lowest node index wins.
Acceptance Accept(const TokenTree& tree,
                  absl::Span<const TokenId> target_tokens);

// The same for trees with nodes that may not be accepted: probes, which are
// only read, and nodes without a row. `acceptable`: [tree.size()].
Acceptance Accept(const TokenTree& tree,
                  absl::Span<const TokenId> target_tokens,
                  const std::vector<bool>& acceptable);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_SPECULATION_ACCEPTANCE_H_
