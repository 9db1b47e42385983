// A warm store and an observer that remember, for the trie_drafter's tests.
#ifndef FORETOKEN_TESTS_UNIT_SERVICES_TRIE_DRAFTER_FAKES_H_
#define FORETOKEN_TESTS_UNIT_SERVICES_TRIE_DRAFTER_FAKES_H_

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "services/trie_drafter/core/trie_sessions.h"

namespace foretoken::trie_drafter {

class FakeStore final : public WarmStore {
 public:
  void Load(const ScopeKey& key, Loaded done) override {
    absl::MutexLock lock(&mu_);
    loads_.emplace_back(key, std::move(done));
  }
  void Save(const ScopeKey& key, RecordKind kind,
            const std::vector<std::vector<TokenId>>& sequences) override {
    absl::MutexLock lock(&mu_);
    if (kind == RecordKind::kPhrases) {
      phrases_.emplace_back(key, sequences);
      return;
    }
    auto& list = kind == RecordKind::kTexts ? texts_ : outputs_;
    for (const std::vector<TokenId>& one : sequences) {
      list.emplace_back(key, one);
    }
  }

  // Answers every load so far with `stored`; how many there were.
  int AnswerLoads(const StoredScope& stored) {
    std::vector<std::pair<ScopeKey, Loaded>> loads;
    {
      absl::MutexLock lock(&mu_);
      loads.swap(loads_);
    }
    for (auto& [key, done] : loads) done(stored);
    return static_cast<int>(loads.size());
  }
  std::vector<std::pair<ScopeKey, std::vector<TokenId>>> outputs() const {
    absl::MutexLock lock(&mu_);
    return outputs_;
  }
  std::vector<std::pair<ScopeKey, std::vector<TokenId>>> texts() const {
    absl::MutexLock lock(&mu_);
    return texts_;
  }
  std::vector<std::pair<ScopeKey, std::vector<Phrase>>> phrases() const {
    absl::MutexLock lock(&mu_);
    return phrases_;
  }

 private:
  mutable absl::Mutex mu_;
  std::vector<std::pair<ScopeKey, Loaded>> loads_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<ScopeKey, std::vector<TokenId>>> outputs_
      ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<ScopeKey, std::vector<TokenId>>> texts_
      ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<ScopeKey, std::vector<Phrase>>> phrases_
      ABSL_GUARDED_BY(mu_);
};

class FakeObserver final : public TrieObserver {
 public:
  void OnSessions(int64_t open, int64_t bytes) override {
    open_ += open;
    bytes_ += bytes;
  }
  void OnScopes(const ScopeTotals&) override {}
  void OnLookup(Lookup what, bool hit) override {
    ++(what == Lookup::kPool ? pool_ : history_)[hit ? 1 : 0];
  }

  std::atomic<int64_t> open_{0};
  std::atomic<int64_t> bytes_{0};
  std::atomic<int> pool_[2] = {};     // misses, hits
  std::atomic<int> history_[2] = {};  // misses, hits
};

}  // namespace foretoken::trie_drafter

#endif  // FORETOKEN_TESTS_UNIT_SERVICES_TRIE_DRAFTER_FAKES_H_
