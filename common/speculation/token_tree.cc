#include "common/speculation/token_tree.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace foretoken {

absl::StatusOr<TokenTree> TokenTree::Create(std::vector<TokenId> tokens,
                                            std::vector<int32_t> parents) {
  if (tokens.size() != parents.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("token tree: ", tokens.size(), " tokens but ",
                     parents.size(), " parents"));
  }
  for (int i = 0; i < static_cast<int>(tokens.size()); ++i) {
    if (parents[i] < kRootParent || parents[i] >= i) {
      return absl::InvalidArgumentError(absl::StrCat("token tree: node ", i,
                                                     " has parent ", parents[i],
                                                     ", want -1..", i - 1));
    }
    if (tokens[i] < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "token tree: node ", i, " has token ", tokens[i], ", want >= 0"));
    }
  }
  TokenTree tree;
  tree.tokens_ = std::move(tokens);
  tree.parents_ = std::move(parents);
  return tree;
}

}  // namespace foretoken
