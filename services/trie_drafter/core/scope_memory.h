// ScopeMemory: what the requests of one cache scope share, and ScopeTable: all
// scopes; the least recently used is evicted first.
//
// A scope holds the history of outputs with its trust (FusedMemory), a phrase
// pool for every phrase length in use and, if it is asked for, a prior of its
// own (ScopePrior). Bounded: the history by its window, the pools by phrases
// and by kMaxLengths, the prior by tokens and bytes, the table by scopes and by
// bytes. A scope that leaves the table while requests use it lives until the
// last of them ends.
// Thread-safe.
#ifndef FORETOKEN_SERVICES_TRIE_DRAFTER_CORE_SCOPE_MEMORY_H_
#define FORETOKEN_SERVICES_TRIE_DRAFTER_CORE_SCOPE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/drafting/draft_session.h"
#include "common/drafting/fused_drafter.h"
#include "common/drafting/phrase_pool.h"
#include "services/trie_drafter/core/scope_prior.h"
#include "services/trie_drafter/core/warm_store.h"

namespace foretoken::trie_drafter {

struct ScopeOptions {
  int64_t history_tokens = int64_t{1} << 18;  // window of outputs
  int32_t pool_width = 20;                    // W: phrases of one first token
  int64_t pool_phrases = int64_t{1} << 15;    // of one length
  int32_t max_scopes = 1024;
  int64_t max_bytes = int64_t{1} << 30;  // of all scopes
  ScopePriorOptions prior;
};

class ScopeMemory {
 public:
  // Maximum number of phrase lengths with a pool in a scope.
  static constexpr size_t kMaxLengths = 4;

  explicit ScopeMemory(const ScopeOptions& options);

  const std::shared_ptr<FusedMemory>& fused() const { return fused_; }

  // Null where scopes have no prior of their own.
  const std::shared_ptr<ScopePrior>& prior() const { return prior_; }

  // Adds phrases, oldest first. Skips those outside 2..kMaxPhraseTokens tokens,
  // and those of a new length beyond kMaxLengths.
  void AddPhrases(absl::Span<const Phrase> phrases);
  // The newest phrases of `phrase_tokens` tokens, newest first; 0 tokens: of
  // every length, the shortest first.
  std::vector<Phrase> NewestPhrases(int32_t phrase_tokens, int32_t max) const;

  // Merges stored data; its phrases count as older than all present ones. True
  // if a compaction of the prior is due that was not due before.
  bool MergeStored(const StoredScope& stored);

  int64_t phrases() const;
  int64_t history_tokens() const { return fused_->Tokens(); }
  int64_t prior_tokens() const;  // counted by the prior
  size_t prior_bytes() const;    // of the prior and its text
  size_t bytes() const;          // of everything

 private:
  PhrasePool* PoolOf(size_t phrase_tokens) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ScopeOptions options_;
  const std::shared_ptr<FusedMemory> fused_;
  const std::shared_ptr<ScopePrior> prior_;  // null: none
  mutable absl::Mutex mu_;
  std::map<size_t, PhrasePool> pools_ ABSL_GUARDED_BY(mu_);  // by length
};

struct ScopeTotals {
  int64_t scopes = 0;
  int64_t history_tokens = 0;
  int64_t phrases = 0;
  int64_t prior_tokens = 0;
  int64_t prior_bytes = 0;
  int64_t bytes = 0;
  int64_t evicted = 0;      // since the start
  int64_t compactions = 0;  // of priors, since the start
  int64_t changes = 0;  // since the start; orders totals reported out of order
};

class ScopeTable {
 public:
  explicit ScopeTable(const ScopeOptions& options) : options_(options) {}

  struct Found {
    std::shared_ptr<ScopeMemory> memory;
    bool created = false;  // new, or evicted since its last use
  };
  Found FindOrCreate(const ScopeKey& key);

  // Call when the scope's memory has grown: updates the totals, and evicts
  // scopes if all together exceed max_bytes.
  void Grown(const ScopeKey& key);
  // As Grown, when the scope's prior was compacted.
  void Compacted(const ScopeKey& key);

  std::vector<std::pair<ScopeKey, std::shared_ptr<ScopeMemory>>> All() const;
  ScopeTotals totals() const;

 private:
  struct Entry {
    ScopeKey key;
    std::shared_ptr<ScopeMemory> memory;
    int64_t history_tokens = 0;  // as of the last Grown
    int64_t phrases = 0;
    int64_t prior_tokens = 0;
    int64_t prior_bytes = 0;
    int64_t bytes = 0;
  };

  void Update(const ScopeKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EvictOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ScopeOptions options_;
  mutable absl::Mutex mu_;
  std::list<Entry> recent_ ABSL_GUARDED_BY(mu_);  // latest use first
  absl::flat_hash_map<ScopeKey, std::list<Entry>::iterator> scopes_
      ABSL_GUARDED_BY(mu_);
  ScopeTotals totals_ ABSL_GUARDED_BY(mu_);
};

}  // namespace foretoken::trie_drafter

#endif  // FORETOKEN_SERVICES_TRIE_DRAFTER_CORE_SCOPE_MEMORY_H_
