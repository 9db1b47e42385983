// PrefixHomes: which member served a prefix last, so that a request goes where
// the pages of its prompt are likely to be cached.
//
// A prefix is known by hashes of its cache scope with its first 0, 32, 64, 128,
// ... tokens: a text that begins like an earlier one finds the member that has
// most of it, up to a factor of two, in a number of look-ups that grows with
// the logarithm of its length. The table is bounded and forgets the keys that
// were used longest ago. Collisions and stale entries cost a prefill, never a
// token. Thread-compatible.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_VERIFIERS_PREFIX_HOMES_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_VERIFIERS_PREFIX_HOMES_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/types.h"

namespace foretoken::orchestrator {

// The hashes of a text's prefixes, shortest first. Empty without a scope:
// nothing is shared then.
using PrefixKeys = std::vector<uint64_t>;
PrefixKeys KeysOfPrefixes(absl::string_view scope,
                          absl::Span<const TokenId> text);

class PrefixHomes {
 public:
  struct Home {
    int member = -1;  // -1: none
    // Place of the prefix in the keys; 0 for the scope without any token.
    int depth = 0;
  };

  explicit PrefixHomes(size_t max_keys) : max_keys_(max_keys) {}

  // The member that served the longest known one of these prefixes.
  Home Find(const PrefixKeys& keys) const;
  void Note(const PrefixKeys& keys, int member);

  size_t size() const { return homes_.size(); }

 private:
  using Entry = std::pair<uint64_t, int>;  // key, member

  const size_t max_keys_;
  std::list<Entry> entries_;  // the latest use first
  absl::flat_hash_map<uint64_t, std::list<Entry>::iterator> homes_;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_VERIFIERS_PREFIX_HOMES_H_
