// Look-ups in a datastore that is too large for memory: rows are fetched from
// the store, all n of a step in one batch, behind a bounded cache.
//
// The cache keeps the store's answers, negative ones included, and evicts the
// least recently used. Owned by one thread.
#ifndef FORETOKEN_SERVICES_CREST_CORE_CACHED_SOURCE_H_
#define FORETOKEN_SERVICES_CREST_CORE_CACHED_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/drafting/crest/crest_source.h"

namespace foretoken::crest {

// Fetches rows by key from the store.
class RowFetcher {
 public:
  virtual ~RowFetcher() = default;

  struct Row {
    uint64_t key;
    std::string record;
  };
  // All rows with one of `keys` (HashNgram of their n-grams), in any order, by
  // one statement. Two n-grams may share a key.
  virtual absl::StatusOr<std::vector<Row>> Fetch(
      absl::Span<const uint64_t> keys) = 0;
};

class CachedSource final : public CrestSource {
 public:
  struct Counts {
    int64_t lookups = 0;
    int64_t statements = 0;  // at most one per look-up
    int64_t cache_hits = 0;  // keys that were answered from the cache
    int64_t cache_misses = 0;
  };

  CachedSource(const CrestMeta& meta, TokenTable table,
               std::unique_ptr<RowFetcher> fetcher, size_t cache_bytes);

  // Errors of the fetcher, and DataLoss for a row that does not decode.
  absl::StatusOr<int> Lookup(absl::Span<const TokenId> context,
                             CrestTree& tree) override;

  const CrestMeta& meta() const override { return meta_; }
  size_t bytes() const override { return cached_bytes_ + table_.bytes(); }
  const Counts& counts() const { return counts_; }

 private:
  struct Entry {
    uint64_t key;
    std::vector<std::string> records;  // empty: not in the store
  };
  using Entries = std::list<Entry>;  // most recently used first

  static size_t CostOf(const Entry& entry);
  // Null if not cached; else moves the entry to the front.
  const Entry* Find(uint64_t key);
  // Decodes the cached entry of `ngram`; false if there is none.
  absl::StatusOr<bool> FindTree(uint64_t key, absl::Span<const TokenId> ngram,
                                CrestTree& tree);
  void Insert(Entry entry);
  absl::Status FetchMissing(absl::Span<const uint64_t> keys);
  // Decodes the record of `ngram` among the entry's.
  absl::StatusOr<bool> Decode(const Entry& entry,
                              absl::Span<const TokenId> ngram,
                              CrestTree& tree) const;

  const CrestMeta meta_;
  const TokenTable table_;
  const std::unique_ptr<RowFetcher> fetcher_;
  const size_t cache_limit_;
  size_t cached_bytes_ = 0;
  Entries entries_;
  absl::flat_hash_map<uint64_t, Entries::iterator> by_key_;
  Counts counts_;
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_CORE_CACHED_SOURCE_H_
