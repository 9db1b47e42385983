#include "common/speculation/token_tree.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace foretoken {

absl::Status TokenTree::Check(absl::Span<const TokenId> tokens,
                              absl::Span<const int32_t> parents,
                              absl::Span<const int32_t> probes) {
  if (tokens.size() != parents.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("token tree: ", tokens.size(), " tokens but ",
                     parents.size(), " parents"));
  }
  const int32_t size = static_cast<int32_t>(tokens.size());
  for (int32_t i = 0; i < size; ++i) {
    // Parents before children: readers scan once, and no node can be its own
    // ancestor.
    if (parents[i] < kRootParent || parents[i] >= i) {
      return absl::InvalidArgumentError(absl::StrCat("token tree: node ", i,
                                                     " has parent ", parents[i],
                                                     ", want -1..", i - 1));
    }
    // Ids above the vocabulary are the verifier's to refuse; the tree does not
    // know its size.
    if (tokens[i] < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "token tree: node ", i, " has token ", tokens[i], ", want >= 0"));
    }
  }
  // Ascending, so that no node is listed twice and the list is no longer than
  // the tree.
  int32_t before = -1;
  for (const int32_t node : probes) {
    if (node <= before || node >= size) {
      return absl::InvalidArgumentError(
          absl::StrCat("token tree: probes: node ", node, " after ", before,
                       ", want ascending nodes below ", size));
    }
    before = node;
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenTree> TokenTree::Create(std::vector<TokenId> tokens,
                                            std::vector<int32_t> parents,
                                            absl::Span<const int32_t> probes) {
  FORETOKEN_RETURN_IF_ERROR(Check(tokens, parents, probes));
  // Empty stands for "no probes", the usual case, which then costs no memory.
  std::vector<bool> probe(probes.empty() ? 0 : tokens.size());
  for (const int32_t node : probes) probe[node] = true;
  DraftTree nodes;
  nodes.tokens = std::move(tokens);
  nodes.parents = std::move(parents);
  return FromValid(std::move(nodes), std::move(probe));
}

TokenTree TokenTree::FromValid(DraftTree nodes, std::vector<bool> probe) {
  // In debug builds only: callers on the hot path have built the tree from
  // parts that were checked.
  assert(Check(nodes.tokens, nodes.parents, {}).ok());
  assert(probe.empty() || probe.size() == nodes.tokens.size());
  TokenTree tree;
  // The empty tree has no representation; plain decoding makes one in every
  // round.
  if (nodes.size() == 0) return tree;
  const int probes =
      static_cast<int>(std::count(probe.begin(), probe.end(), true));
  // Shared and immutable: copies of a tree go to several threads without
  // copying its nodes.
  auto rep = std::make_shared<Rep>();
  rep->draft_nodes = nodes.size() - probes;
  rep->nodes = std::move(nodes);
  rep->probe = std::move(probe);
  tree.rep_ = std::move(rep);
  return tree;
}

}  // namespace foretoken
