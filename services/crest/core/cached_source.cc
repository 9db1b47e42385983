#include "services/crest/core/cached_source.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/bytes.h"
#include "common/base/status_macros.h"

namespace foretoken::crest {
namespace {

// Approximate size of an entry's list node, map slot and vector header.
constexpr size_t kEntryOverhead = 128;

}  // namespace

CachedSource::CachedSource(const CrestMeta& meta, TokenTable table,
                           std::unique_ptr<RowFetcher> fetcher,
                           size_t cache_bytes)
    : meta_(meta),
      table_(std::move(table)),
      fetcher_(std::move(fetcher)),
      // At least one look-up's rows must fit, whatever cache_bytes is.
      cache_limit_(std::max<size_t>(cache_bytes, size_t{64} << 10)) {}

absl::StatusOr<int> CachedSource::Lookup(absl::Span<const TokenId> context,
                                         CrestTree& tree) {
  ++counts_.lookups;
  tree.Clear();
  const size_t longest = std::min<size_t>(meta_.max_n, context.size());
  uint64_t keys[kMaxCrestN + 1];
  uint64_t unknown[kMaxCrestN];
  size_t unknown_size = 0;
  // Pass 1: the longest n-gram first, until the cache answers one with a tree.
  // Keys that are not in the cache are noted: a longer n-gram may match only
  // there. A cached entry without records is a known miss and costs no
  // statement.
  size_t cached = 0;  // longest n that the cache answers with a tree
  for (size_t n = longest; n >= meta_.min_n && cached == 0; --n) {
    keys[n] = HashNgram(context.last(n));
    if (Find(keys[n]) == nullptr) {
      unknown[unknown_size++] = keys[n];
      continue;
    }
    ++counts_.cache_hits;
    FORETOKEN_ASSIGN_OR_RETURN(const bool found,
                               FindTree(keys[n], context.last(n), tree));
    if (found) cached = n;
  }
  if (unknown_size == 0) return static_cast<int>(cached);
  FORETOKEN_RETURN_IF_ERROR(FetchMissing({unknown, unknown_size}));
  // Pass 2: again the longest first, now with all rows present. N-grams shorter
  // than the cached hit cannot win and were not fetched.
  for (size_t n = longest; n >= std::max<size_t>(meta_.min_n, cached); --n) {
    FORETOKEN_ASSIGN_OR_RETURN(const bool found,
                               FindTree(keys[n], context.last(n), tree));
    if (found) return static_cast<int>(n);
  }
  return 0;
}

absl::StatusOr<bool> CachedSource::FindTree(uint64_t key,
                                            absl::Span<const TokenId> ngram,
                                            CrestTree& tree) {
  const Entry* entry = Find(key);
  if (entry == nullptr) return false;
  return Decode(*entry, ngram, tree);
}

absl::Status CachedSource::FetchMissing(absl::Span<const uint64_t> keys) {
  ++counts_.statements;
  counts_.cache_misses += static_cast<int64_t>(keys.size());
  FORETOKEN_ASSIGN_OR_RETURN(std::vector<RowFetcher::Row> rows,
                             fetcher_->Fetch(keys));
  for (const uint64_t key : keys) {
    // An entry without records remembers that the store has none.
    Entry entry{key, {}};
    for (RowFetcher::Row& row : rows) {
      if (row.key == key) entry.records.push_back(std::move(row.record));
    }
    Insert(std::move(entry));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> CachedSource::Decode(const Entry& entry,
                                          absl::Span<const TokenId> ngram,
                                          CrestTree& tree) const {
  RecordView view;
  // Two n-grams may share a 64-bit key: compare the n-gram itself.
  for (const std::string& record : entry.records) {
    const absl::Status status =
        ParseRecord(AsBytes(record), table_, view, tree);
    if (!status.ok()) {
      tree.Clear();
      return absl::DataLossError(
          absl::StrCat("row ", entry.key, ": ", std::string(status.message())));
    }
    if (absl::Span<const TokenId>(view.ngram, view.n) == ngram) return true;
  }
  tree.Clear();
  return false;
}

size_t CachedSource::CostOf(const Entry& entry) {
  size_t bytes = kEntryOverhead;
  for (const std::string& record : entry.records) {
    bytes += sizeof(std::string) + record.capacity();
  }
  return bytes;
}

const CachedSource::Entry* CachedSource::Find(uint64_t key) {
  const auto it = by_key_.find(key);
  if (it == by_key_.end()) return nullptr;
  // In order of use, for eviction; splice keeps iterators and pointers valid.
  entries_.splice(entries_.begin(), entries_, it->second);
  return &*it->second;
}

void CachedSource::Insert(Entry entry) {
  cached_bytes_ += CostOf(entry);
  entries_.push_front(std::move(entry));
  by_key_[entries_.front().key] = entries_.begin();
  // At least kMaxCrestN entries stay, so that the rows of a look-up survive
  // until its second pass, however large they are.
  while (cached_bytes_ > cache_limit_ && entries_.size() > kMaxCrestN) {
    cached_bytes_ -= CostOf(entries_.back());
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

}  // namespace foretoken::crest
