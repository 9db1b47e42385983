#include "services/crest/adapters/lookup_messages.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/drafting/crest/crest_record.h"

namespace foretoken::crest {

absl::Status CheckRequest(const v1::CrestLookupRequest& request,
                          int max_tree_nodes) {
  if (request.context_size() > kMaxLookupContext) {
    return absl::InvalidArgumentError(
        absl::StrCat("context: ", request.context_size(), " tokens, want 0..",
                     kMaxLookupContext));
  }
  for (int i = 0; i < request.context_size(); ++i) {
    if (request.context(i) >= 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "context[", i, "]: ", request.context(i), ", want a token id"));
  }
  if (request.max_nodes() < 1 || request.max_nodes() > max_tree_nodes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_nodes: ", request.max_nodes(), ", want 1..", max_tree_nodes));
  }
  const size_t bytes = request.tokenizer_fingerprint().size();
  if (bytes != 0 && bytes != Sha256Digest().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer_fingerprint: ", bytes, " bytes, want 0 or ",
                     Sha256Digest().size()));
  }
  return absl::OkStatus();
}

void FillResponse(int n, const CrestTree& tree, int max_nodes, int64_t version,
                  v1::CrestLookupResponse& response) {
  response.set_n(n);
  response.set_version(version);
  const int nodes = std::min(max_nodes, tree.size());
  v1::TokenTree& out = *response.mutable_tree();
  out.mutable_tokens()->Reserve(nodes);
  out.mutable_parents()->Reserve(nodes);
  out.mutable_proposers()->Reserve(nodes);
  out.mutable_probabilities()->Reserve(nodes);
  response.mutable_counts()->Reserve(nodes);
  for (int i = 0; i < nodes; ++i) {
    out.add_tokens(tree.tokens[i]);
    out.add_parents(tree.parents[i]);
    // A bit per proposer (token_tree.proto).
    out.add_proposers(1u << v1::DRAFTER_CREST);
    out.add_probabilities(tree.Share(i));
    response.add_counts(tree.counts[i]);
  }
}

}  // namespace foretoken::crest
