#include "services/crest/core/batched_source.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace foretoken::crest {
namespace {

absl::Status NotConnected() {
  return absl::UnavailableError("the datastore's store is not connected");
}

}  // namespace

// The fetcher that CachedSource sees. While collecting, it refuses every
// request and notes the keys; afterwards it answers from what was fetched for
// all queries together.
class BatchedSource::Stage final : public RowFetcher {
 public:
  explicit Stage(BatchedSource& owner) : owner_(owner) {}

  absl::StatusOr<std::vector<Row>> Fetch(
      absl::Span<const uint64_t> keys) override {
    if (collecting_) {
      for (const uint64_t key : keys) rows_.try_emplace(key);
      // Aborted marks a stopped look-up in LookupMany. No other error can carry
      // it there: nothing reaches the store while keys are collected.
      return absl::AbortedError("rows are being collected");
    }
    // The second run may need a row that the first one found in the cache and a
    // small cache has evicted since.
    const bool all = std::all_of(keys.begin(), keys.end(), [&](uint64_t key) {
      return rows_.contains(key);
    });
    if (!all) return owner_.fetcher_->Fetch(keys);
    std::vector<Row> rows;
    for (const uint64_t key : keys) {
      for (const std::string& record : rows_[key])
        rows.push_back({key, record});
    }
    return rows;
  }

  void Collect() {
    rows_.clear();
    collecting_ = true;
  }

  // Ends the collection with one statement for all keys.
  absl::Status FetchCollected() {
    collecting_ = false;
    if (owner_.fetcher_ == nullptr) return NotConnected();
    std::vector<uint64_t> keys;
    keys.reserve(rows_.size());
    for (const auto& [key, unused] : rows_) keys.push_back(key);
    absl::StatusOr<std::vector<Row>> rows = owner_.fetcher_->Fetch(keys);
    if (!rows.ok()) return rows.status();
    for (Row& row : *rows) rows_[row.key].push_back(std::move(row.record));
    return absl::OkStatus();
  }

 private:
  BatchedSource& owner_;
  bool collecting_ = false;
  absl::flat_hash_map<uint64_t, std::vector<std::string>> rows_;
};

BatchedSource::BatchedSource(const CrestMeta& meta, TokenTable table,
                             size_t cache_bytes) {
  auto stage = std::make_unique<Stage>(*this);
  stage_ = stage.get();
  source_ = std::make_unique<CachedSource>(meta, std::move(table),
                                           std::move(stage), cache_bytes);
}

BatchedSource::~BatchedSource() = default;

void BatchedSource::SetFetcher(std::unique_ptr<RowFetcher> fetcher) {
  fetcher_ = std::move(fetcher);
}

absl::Status BatchedSource::LookupMany(std::vector<Query>& queries) {
  // Every look-up runs twice: first to name the rows that the cache lacks, then
  // over the rows that one statement has brought for all of them.
  stage_->Collect();
  std::vector<Query*> stopped;
  for (Query& query : queries) {
    query.n = source_->Lookup(query.context, query.tree);
    query.cached = !absl::IsAborted(query.n.status());
    if (!query.cached) stopped.push_back(&query);
  }
  if (stopped.empty()) return absl::OkStatus();
  const absl::Status fetched = stage_->FetchCollected();
  for (Query* query : stopped) {
    if (fetched.ok()) {
      query->n = source_->Lookup(query->context, query->tree);
    } else {
      query->n = fetched;
    }
  }
  return fetched;
}

}  // namespace foretoken::crest
