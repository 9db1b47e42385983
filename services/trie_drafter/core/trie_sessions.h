// TrieSessions: the drafting of trie_drafter, without its network.
//
//   ngram_trie  a count trie over the request's own text
//   auto        that text, earlier outputs of the scope and a prior, fused
//   ouroboros   no drafts: rounds carry phrases into the scope's shared pool
//
// A request without a cache scope shares nothing and leaves nothing behind.
// With one, its committed tokens (never its prompt) join the scope's history
// when its session ends and, with ScopePriorOptions, are counted into a prior
// of the scope once they leave the history. A scope that is first seen is
// loaded from the warm store while requests go on without it. Thread-safe; a
// session is owned by one thread at a time.
#ifndef FORETOKEN_SERVICES_TRIE_DRAFTER_CORE_TRIE_SESSIONS_H_
#define FORETOKEN_SERVICES_TRIE_DRAFTER_CORE_TRIE_SESSIONS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/drafting/draft_session.h"
#include "common/drafting/shared_phrases.h"
#include "common/drafting/static_prior.h"
#include "services/trie_drafter/core/scope_memory.h"
#include "services/trie_drafter/core/warm_store.h"

namespace foretoken::trie_drafter {

struct TrieOptions {
  int32_t max_sessions = 1024;
  int64_t max_session_bytes = int64_t{4} << 30;  // of all sessions together
  int64_t max_context_tokens = int64_t{1} << 20;
  int32_t max_nodes = 256;  // of a draft; a round that asks for more gets these
  ScopeOptions scopes;
};

enum class Lookup { kHistory, kPool };

// Observes changes, for metrics. Must be thread-safe and fast.
class TrieObserver {
 public:
  virtual ~TrieObserver() = default;
  // Changes, negative if sessions shrank: calls may arrive out of order.
  virtual void OnSessions(int64_t open, int64_t bytes) = 0;
  virtual void OnScopes(const ScopeTotals& totals) = 0;
  virtual void OnLookup(Lookup what, bool hit) = 0;
};

class TrieSessions final : public DraftSessions, public SharedPhrases {
 public:
  // `prior` and `store` may be null. `store` must outlive the object, the
  // observer both.
  TrieSessions(const TrieOptions& options,
               std::shared_ptr<const StaticPrior> prior, WarmStore* store,
               TrieObserver& observer, Clock clock = MonotonicClock());
  ~TrieSessions() override;

  // Reads the prompt before it returns; sessions answer within Ask. The object
  // must outlive its sessions.
  absl::StatusOr<std::unique_ptr<DraftSession>> Open(
      DraftOpen open, std::shared_ptr<DraftListener> listener) override;

  // As ScopeMemory::NewestPhrases.
  std::vector<Phrase> NewestPhrases(const PhraseQuery& query);
  // `done` has run when this returns.
  std::unique_ptr<Fetch> GetPhrases(const PhraseQuery& query,
                                    Done done) override;

  int64_t sessions() const { return sessions_.load(); }
  ScopeTotals scopes() const { return scopes_->totals(); }

 private:
  class Session;

  absl::Status Admit();
  void Resized(int64_t delta_bytes);
  void Closed(int64_t bytes);
  std::shared_ptr<ScopeMemory> FindScope(const ScopeKey& key);
  void ScopeGrown(const ScopeKey& key);
  void SaveTexts(const ScopeKey& key, const ScopePrior::Texts& batch);

  const TrieOptions options_;
  const std::shared_ptr<const StaticPrior> prior_;
  WarmStore* const store_;
  TrieObserver& observer_;
  const Clock clock_;
  // Shared with loads that are under way.
  const std::shared_ptr<ScopeTable> scopes_;
  std::atomic<int64_t> sessions_{0};
  std::atomic<int64_t> session_bytes_{0};
  // Null where scopes have no prior of their own. Loads that are under way
  // refer to it weakly. Last: its thread uses scopes_ and observer_.
  std::shared_ptr<PriorCompactor> compactor_;
};

}  // namespace foretoken::trie_drafter

#endif  // FORETOKEN_SERVICES_TRIE_DRAFTER_CORE_TRIE_SESSIONS_H_
