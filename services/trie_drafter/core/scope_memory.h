// ScopeMemory: what the requests of one cache scope share, and ScopeTable: all
// scopes; the least recently used is evicted first.
//
// A scope holds the history of outputs with its trust (FusedMemory) and a
// phrase pool for every phrase length in use. Bounded: the history by its
// window, the pools by phrases and by kMaxLengths, the table by scopes and by
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
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/drafting/draft_session.h"
#include "common/drafting/fused_drafter.h"
#include "common/drafting/phrase_pool.h"
#include "services/trie_drafter/core/warm_store.h"

namespace foretoken::trie_drafter {

struct ScopeOptions {
  int64_t history_tokens = int64_t{1} << 18;  // window of outputs
  int32_t pool_width = 20;                    // W: phrases of one first token
  int64_t pool_phrases = int64_t{1} << 15;    // of one length
  int32_t max_scopes = 1024;
  int64_t max_bytes = int64_t{1} << 30;  // of all scopes
};

class ScopeMemory {
 public:
  // Maximum number of phrase lengths with a pool in a scope.
  static constexpr size_t kMaxLengths = 4;

  explicit ScopeMemory(const ScopeOptions& options);

  const std::shared_ptr<FusedMemory>& fused() const { return fused_; }

  // Adds phrases, oldest first. Skips those outside 2..kMaxPhraseTokens tokens,
  // and those of a new length beyond kMaxLengths.
  void AddPhrases(absl::Span<const Phrase> phrases);
  // The newest phrases of `phrase_tokens` tokens, newest first; 0 tokens: of
  // every length, the shortest first.
  std::vector<Phrase> NewestPhrases(int32_t phrase_tokens, int32_t max) const;

  // Merges stored data; its phrases count as older than all present ones.
  void MergeStored(const StoredScope& stored);

  int64_t phrases() const;
  int64_t history_tokens() const { return fused_->Tokens(); }
  size_t bytes() const;

 private:
  PhrasePool* PoolOf(size_t phrase_tokens) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ScopeOptions options_;
  const std::shared_ptr<FusedMemory> fused_;
  mutable absl::Mutex mu_;
  std::map<size_t, PhrasePool> pools_ ABSL_GUARDED_BY(mu_);  // by length
};

struct ScopeTotals {
  int64_t scopes = 0;
  int64_t history_tokens = 0;
  int64_t phrases = 0;
  int64_t bytes = 0;
  int64_t evicted = 0;  // since the start
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

  ScopeTotals totals() const;

 private:
  struct Entry {
    ScopeKey key;
    std::shared_ptr<ScopeMemory> memory;
    int64_t history_tokens = 0;  // as of the last Grown
    int64_t phrases = 0;
    int64_t bytes = 0;
  };

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
