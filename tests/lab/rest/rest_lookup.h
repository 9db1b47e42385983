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
#ifndef FORETOKEN_TESTS_LAB_REST_REST_LOOKUP_H_
#define FORETOKEN_TESTS_LAB_REST_REST_LOOKUP_H_

#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/drafting/crest/crest_tree.h"
#include "common/drafting/crest/tree_select.h"
#include "tests/lab/rest/rest_store.h"

namespace foretoken {

struct RestOptions {
  static constexpr int kMaxN = 64;

  int max_n = 16;  // longest match tried, 1..kMaxN; 4 if `exact`
  int min_n = 2;   // shortest, 1..max_n
  bool exact = false;
  int max_hits = 5000;    // if not `exact`
  int continuation = 10;  // tokens
};

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

#endif  // FORETOKEN_TESTS_LAB_REST_REST_LOOKUP_H_
