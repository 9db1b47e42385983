#include "services/trie_drafter/core/scope_memory.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace foretoken::trie_drafter {

ScopeMemory::ScopeMemory(const ScopeOptions& options)
    : options_(options),
      fused_(std::make_shared<FusedMemory>(
          static_cast<size_t>(options.history_tokens))),
      prior_(options.prior.max_tokens > 0
                 ? std::make_shared<ScopePrior>(options.prior, fused_)
                 : nullptr) {}

PhrasePool* ScopeMemory::PoolOf(size_t phrase_tokens) {
  if (phrase_tokens < 2 ||
      phrase_tokens > PhrasePoolOptions::kMaxPhraseTokens) {
    return nullptr;
  }
  const auto found = pools_.find(phrase_tokens);
  if (found != pools_.end()) return &found->second;
  // Callers choose the lengths: without a bound a scope could have a pool for
  // each.
  if (pools_.size() == kMaxLengths) return nullptr;
  PhrasePoolOptions options;
  options.width = options_.pool_width;
  options.phrase_tokens = static_cast<int>(phrase_tokens);
  options.max_phrases = options_.pool_phrases;
  return &pools_.try_emplace(phrase_tokens, options).first->second;
}

void ScopeMemory::AddPhrases(absl::Span<const Phrase> phrases) {
  absl::MutexLock lock(&mu_);
  for (const Phrase& phrase : phrases) {
    PhrasePool* const pool = PoolOf(phrase.size());
    if (pool != nullptr) pool->Insert(phrase);
  }
}

std::vector<Phrase> ScopeMemory::NewestPhrases(int32_t phrase_tokens,
                                               int32_t max) const {
  std::vector<Phrase> newest;
  absl::MutexLock lock(&mu_);
  for (const auto& [length, pool] : pools_) {
    if (phrase_tokens != 0 && static_cast<size_t>(phrase_tokens) != length) {
      continue;
    }
    // A snapshot is flat and oldest first: walk it from the end.
    const std::vector<TokenId> all = pool.Snapshot();
    for (size_t end = all.size(); end > 0; end -= length) {
      if (newest.size() >= static_cast<size_t>(max)) return newest;
      newest.emplace_back(all.begin() + static_cast<ptrdiff_t>(end - length),
                          all.begin() + static_cast<ptrdiff_t>(end));
    }
  }
  return newest;
}

bool ScopeMemory::MergeStored(const StoredScope& stored) {
  // fused_ and prior_ have locks of their own and are never touched under mu_.
  for (const std::vector<TokenId>& output : stored.outputs) {
    fused_->AddOutput(output);
  }
  const bool due =
      prior_ != nullptr && prior_->Restore(stored.texts, stored.outputs);
  std::map<size_t, std::vector<TokenId>> older;  // by length
  for (const Phrase& phrase : stored.phrases) {
    std::vector<TokenId>& flat = older[phrase.size()];
    flat.insert(flat.end(), phrase.begin(), phrase.end());
  }
  absl::MutexLock lock(&mu_);
  for (const auto& [length, flat] : older) {
    PhrasePool* const pool = PoolOf(length);
    // Whole phrases without negative tokens: the store has checked them.
    if (pool != nullptr) FORETOKEN_CHECK(pool->MergeOlder(flat).ok());
  }
  return due;
}

int64_t ScopeMemory::phrases() const {
  absl::MutexLock lock(&mu_);
  int64_t sum = 0;
  for (const auto& [length, pool] : pools_) sum += pool.size();
  return sum;
}

int64_t ScopeMemory::prior_tokens() const {
  return prior_ == nullptr ? 0 : prior_->counted_tokens();
}

size_t ScopeMemory::prior_bytes() const {
  return prior_ == nullptr ? 0 : prior_->bytes();
}

size_t ScopeMemory::bytes() const {
  size_t sum = fused_->MemoryBytes() + prior_bytes();
  absl::MutexLock lock(&mu_);
  for (const auto& [length, pool] : pools_) sum += pool.MemoryBytes();
  return sum;
}

ScopeTable::Found ScopeTable::FindOrCreate(const ScopeKey& key) {
  absl::MutexLock lock(&mu_);
  const auto found = scopes_.find(key);
  if (found != scopes_.end()) {
    recent_.splice(recent_.begin(), recent_, found->second);
    return {found->second->memory, false};
  }
  // Before the insertion, so that the new scope is never the one evicted.
  if (recent_.size() >= static_cast<size_t>(options_.max_scopes)) EvictOldest();
  recent_.push_front({key, std::make_shared<ScopeMemory>(options_)});
  scopes_[key] = recent_.begin();
  totals_.scopes = static_cast<int64_t>(recent_.size());
  ++totals_.changes;
  return {recent_.front().memory, true};
}

std::vector<std::pair<ScopeKey, std::shared_ptr<ScopeMemory>>> ScopeTable::All()
    const {
  std::vector<std::pair<ScopeKey, std::shared_ptr<ScopeMemory>>> all;
  absl::MutexLock lock(&mu_);
  for (const Entry& entry : recent_) all.emplace_back(entry.key, entry.memory);
  return all;
}

void ScopeTable::Compacted(const ScopeKey& key) {
  absl::MutexLock lock(&mu_);
  ++totals_.compactions;
  Update(key);
}

void ScopeTable::Grown(const ScopeKey& key) {
  absl::MutexLock lock(&mu_);
  Update(key);
}

// Takes the scope's locks under mu_; ScopeMemory never calls the table, so the
// order cannot invert. Totals change by the difference since the last update,
// which keeps them exact without a walk over all scopes.
void ScopeTable::Update(const ScopeKey& key) {
  const auto found = scopes_.find(key);
  // Evicted while its last request ran.
  if (found == scopes_.end()) return;
  ++totals_.changes;
  Entry& entry = *found->second;
  const auto update = [](int64_t now, int64_t& field, int64_t& total) {
    total += now - field;
    field = now;
  };
  update(entry.memory->history_tokens(), entry.history_tokens,
         totals_.history_tokens);
  update(entry.memory->phrases(), entry.phrases, totals_.phrases);
  update(entry.memory->prior_tokens(), entry.prior_tokens,
         totals_.prior_tokens);
  update(static_cast<int64_t>(entry.memory->prior_bytes()), entry.prior_bytes,
         totals_.prior_bytes);
  update(static_cast<int64_t>(entry.memory->bytes()), entry.bytes,
         totals_.bytes);
  // May evict the scope itself, if it alone exceeds the limit; its requests
  // keep it alive.
  while (totals_.bytes > options_.max_bytes && !recent_.empty()) EvictOldest();
}

void ScopeTable::EvictOldest() {
  const Entry& oldest = recent_.back();
  totals_.history_tokens -= oldest.history_tokens;
  totals_.phrases -= oldest.phrases;
  totals_.prior_tokens -= oldest.prior_tokens;
  totals_.prior_bytes -= oldest.prior_bytes;
  totals_.bytes -= oldest.bytes;
  ++totals_.evicted;
  scopes_.erase(oldest.key);
  recent_.pop_back();
  totals_.scopes = static_cast<int64_t>(recent_.size());
}

ScopeTotals ScopeTable::totals() const {
  absl::MutexLock lock(&mu_);
  return totals_;
}

}  // namespace foretoken::trie_drafter
