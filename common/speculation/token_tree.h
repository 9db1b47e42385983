// Token tree: the shape in which every drafter proposes and the verifier
// scores.
//
// Node i holds one draft token and a parent index. Parents come before their
// children, so one forward scan visits every path root-first.
//
// Source: SpecInfer, arXiv:2305.09781, "Token Tree Verifier".
// Thread-compatible: const methods may be called concurrently.
#ifndef FORETOKEN_COMMON_SPECULATION_TOKEN_TREE_H_
#define FORETOKEN_COMMON_SPECULATION_TOKEN_TREE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/types.h"

namespace foretoken {

// Maximum size of a tree.
struct TreeLimits {
  int32_t max_draft_nodes = 64;
  int32_t max_rows = 320;  // draft and probe nodes
};

class TokenTree {
 public:
  TokenTree() = default;

  // Checks the order once, so that readers never have to.
  // InvalidArgument names the first bad node: a parent outside -1..i-1, a
  // negative token, or arrays of different lengths.
  static absl::StatusOr<TokenTree> Create(std::vector<TokenId> tokens,
                                          std::vector<int32_t> parents);

  int size() const { return static_cast<int>(tokens_.size()); }
  bool empty() const { return tokens_.empty(); }
  absl::Span<const TokenId> tokens() const { return tokens_; }    // [size]
  absl::Span<const int32_t> parents() const { return parents_; }  // [size]

 private:
  std::vector<TokenId> tokens_;
  std::vector<int32_t> parents_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_SPECULATION_TOKEN_TREE_H_
