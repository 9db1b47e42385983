// TokenTree: a checked token tree, which the verifier scores.
//
// Node i holds one draft token and a parent index. Parents come before their
// children, so one forward scan visits every path root-first. Probes are read
// but never accepted, and so is every node below one.
//
// The nodes are immutable, and copies of a tree share them: a round's request,
// the verifier and the drafters that learn from the result read the same
// arrays.
//
// Source: SpecInfer, arXiv:2305.09781, "Token Tree Verifier".
// Thread-compatible: const methods may be called concurrently, also of copies.
#ifndef FORETOKEN_COMMON_SPECULATION_TOKEN_TREE_H_
#define FORETOKEN_COMMON_SPECULATION_TOKEN_TREE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/speculation/draft_tree.h"
#include "common/speculation/drafter_id.h"

namespace foretoken {

// Maximum size of a tree.
struct TreeLimits {
  int32_t max_draft_nodes = 64;
  int32_t max_rows = 320;  // draft and probe nodes
};

class TokenTree {
 public:
  TokenTree() = default;

  // Checks the order once, so that readers never have to. InvalidArgument names
  // the first bad node: a parent outside -1..i-1, a negative token, or a probe
  // that does not follow the one before; or says that the arrays differ in
  // length. `probes` are nodes, ascending.
  static absl::StatusOr<TokenTree> Create(
      std::vector<TokenId> tokens, std::vector<int32_t> parents,
      absl::Span<const int32_t> probes = {});
  // The check of Create, without a tree.
  static absl::Status Check(absl::Span<const TokenId> tokens,
                            absl::Span<const int32_t> parents,
                            absl::Span<const int32_t> probes);
  // Takes nodes that are valid by construction, as those of a merge are; only
  // debug builds check them. `probe`: empty if there are none, else [size].
  static TokenTree FromValid(DraftTree nodes, std::vector<bool> probe);

  int size() const { return rep_ == nullptr ? 0 : rep_->nodes.size(); }
  bool empty() const { return size() == 0; }
  // Number of nodes that are not probes; in a merged tree they come first.
  int draft_nodes() const { return rep_ == nullptr ? 0 : rep_->draft_nodes; }

  absl::Span<const TokenId> tokens() const {  // [size]
    return Array(&DraftTree::tokens);
  }
  absl::Span<const int32_t> parents() const {  // [size]
    return Array(&DraftTree::parents);
  }
  bool is_probe(int32_t node) const {
    return !rep_->probe.empty() && rep_->probe[node];
  }

  // Estimates of a merge for its nodes (draft_tree.h): [size], empty in other
  // trees.
  absl::Span<const float> probs() const { return Array(&DraftTree::probs); }
  absl::Span<const DrafterId> parts() const { return Array(&DraftTree::parts); }
  absl::Span<const ProposerSet> proposers() const {
    return Array(&DraftTree::proposers);
  }
  absl::Span<const int> credited() const { return Array(&DraftTree::credited); }

 private:
  struct Rep {
    DraftTree nodes;
    std::vector<bool> probe;
    int draft_nodes = 0;
  };

  template <typename Value>
  absl::Span<const Value> Array(std::vector<Value> DraftTree::*array) const {
    if (rep_ == nullptr) return {};
    return rep_->nodes.*array;
  }

  // Null for the empty tree. Shared, because the verifier and the drafters read
  // a round's tree on threads of their own, which may outlive the round.
  std::shared_ptr<const Rep> rep_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_SPECULATION_TOKEN_TREE_H_
