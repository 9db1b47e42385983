#include "common/spec/acceptance.h"

#include "common/base/check.h"

namespace foretoken {

Acceptance Accept(const TokenTree& tree,
                  absl::Span<const TokenId> target_tokens) {
  FORETOKEN_CHECK(target_tokens.size() ==
                  static_cast<size_t>(tree.size()) + 1);
  Acceptance result;
  int32_t at = kRootParent;
  // Parents precede children, so one scan meets the path in order.
  for (int32_t node = 0; node < tree.size(); ++node) {
    if (tree.parents()[node] == at &&
        tree.tokens()[node] == target_tokens[at + 1]) {
      result.path.push_back(node);
      at = node;
    }
  }
  result.bonus_token = target_tokens[at + 1];
  return result;
}

}  // namespace foretoken
