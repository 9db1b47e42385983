// Batches many look-ups into one statement, on top of CachedSource.
//
// Every look-up runs against the cache first; one that lacks rows stops and
// reports their keys. All missing rows are fetched at once, and the stopped
// look-ups run again with them.
// Owned by one thread.
#ifndef FORETOKEN_SERVICES_CREST_CORE_BATCHED_SOURCE_H_
#define FORETOKEN_SERVICES_CREST_CORE_BATCHED_SOURCE_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/types.h"
#include "common/drafting/crest/crest_meta.h"
#include "common/drafting/crest/crest_tree.h"
#include "services/crest/core/cached_source.h"

namespace foretoken::crest {

class BatchedSource {
 public:
  struct Query {
    std::vector<TokenId> context;
    absl::StatusOr<int> n = 0;  // as CrestSource::Lookup
    CrestTree tree;
    bool cached = false;  // no statement was needed
  };

  BatchedSource(const CrestMeta& meta, TokenTable table, size_t cache_bytes);
  ~BatchedSource();

  // Replaces the connection and keeps the cache: rows of a version never
  // change. Null: no connection; look-ups that need rows fail.
  void SetFetcher(std::unique_ptr<RowFetcher> fetcher);

  // Answers all queries. A fetcher error is returned and set on the queries
  // that needed rows; answers from the cache remain valid.
  absl::Status LookupMany(std::vector<Query>& queries);

 private:
  class Stage;

  std::unique_ptr<RowFetcher> fetcher_;
  Stage* stage_;  // owned by source_
  std::unique_ptr<CachedSource> source_;
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_CORE_BATCHED_SOURCE_H_
