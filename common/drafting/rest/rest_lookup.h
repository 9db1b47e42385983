// REST's look-up: the tree of the continuations of the longest match of a
// context in a store.
//
// As published: the longest match of the last 16..2 tokens, its first 5000 hits
// in suffix order, 10 tokens each, the most frequent prefixes, then the longest
// paths dropped until the sum of path lengths is at most the requested size.
// With exact counts: all hits, and the best tree of the requested size.
//
// Source: REST, arXiv:2311.08252, section 3. Owned by one thread; keeps its
// buffers between look-ups.
#ifndef FORETOKEN_COMMON_DRAFTING_REST_REST_LOOKUP_H_
#define FORETOKEN_COMMON_DRAFTING_REST_REST_LOOKUP_H_

#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/drafting/crest/crest_tree.h"
#include "common/drafting/crest/tree_select.h"
#include "common/drafting/rest/rest_store.h"
#include "common/speculation/modes.h"

namespace foretoken {

class RestLookup {
 public:
  explicit RestLookup(const RestOptions& options = {}) : options_(options) {}

  // Returns the length of the match of the context's end and fills `tree`; 0
  // and an empty tree if there is none. Tokens that are not in the store's
  // vocabulary match nothing.
  int Find(const RestStore& store, absl::Span<const TokenId> context,
           int max_nodes, CrestTree& tree);

  const RestOptions& options() const { return options_; }

 private:
  const RestOptions options_;
  TreeSelector selector_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_REST_REST_LOOKUP_H_
