#include "common/speculation/acceptance.h"

#include "common/base/check.h"

namespace foretoken {

namespace {

template <typename Acceptable>
Acceptance Walk(const TokenTree& tree, absl::Span<const TokenId> target_tokens,
                Acceptable acceptable) {
  // Row 0 is the committed context, row i + 1 is node i: one target token for
  // each row.
  FORETOKEN_CHECK(target_tokens.size() == static_cast<size_t>(tree.size()) + 1);
  const absl::Span<const TokenId> tokens = tree.tokens();
  const absl::Span<const int32_t> parents = tree.parents();
  Acceptance result;
  // Invariant: `at` is the last accepted node, kRootParent (-1) for the
  // context, so at + 1 is its row. At most one child of it has the target's
  // token, as siblings differ.
  int32_t at = kRootParent;
  // Parents precede children, so one scan meets the path in order.
  for (int32_t node = 0; node < tree.size(); ++node) {
    if (parents[node] == at && acceptable(node) &&
        tokens[node] == target_tokens[at + 1]) {
      result.path.push_back(node);
      at = node;
    }
  }
  // Also when nothing was accepted: a round always commits at least the token
  // that plain decoding would have.
  result.bonus_token = target_tokens[at + 1];
  return result;
}

}  // namespace

Acceptance Accept(const TokenTree& tree,
                  absl::Span<const TokenId> target_tokens) {
  return Walk(tree, target_tokens, [](int32_t) { return true; });
}

Acceptance Accept(const TokenTree& tree,
                  absl::Span<const TokenId> target_tokens,
                  const std::vector<bool>& acceptable) {
  FORETOKEN_CHECK(acceptable.size() == static_cast<size_t>(tree.size()));
  return Walk(tree, target_tokens,
              [&](int32_t node) { return acceptable[node]; });
}

}  // namespace foretoken
