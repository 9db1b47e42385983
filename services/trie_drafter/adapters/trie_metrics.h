// The trie drafter's metrics: what core, streams and warm store tell, to
// Prometheus. Thread-safe.
#ifndef FORETOKEN_SERVICES_TRIE_DRAFTER_ADAPTERS_TRIE_METRICS_H_
#define FORETOKEN_SERVICES_TRIE_DRAFTER_ADAPTERS_TRIE_METRICS_H_

#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/metrics/registry.h"
#include "common/rpc/draft_stream.h"
#include "services/trie_drafter/adapters/redis_warm_store.h"
#include "services/trie_drafter/core/trie_sessions.h"

namespace foretoken::trie_drafter {

class TrieMetrics final : public rpc::DraftStreamObserver,
                          public TrieObserver,
                          public WarmStoreObserver {
 public:
  explicit TrieMetrics(metrics::Registry& registry);

  void OnStreams(int open) override;
  void OnAnswer(const DraftAnswer& answer) override;
  void OnFailed(absl::StatusCode code) override;

  void OnSessions(int64_t open, int64_t bytes) override;
  void OnScopes(const ScopeTotals& totals) override;
  void OnLookup(Lookup what, bool hit) override;

  void OnUp(bool up) override;
  void OnEvent(WarmEvent event) override;

 private:
  prometheus::Gauge& streams_;
  prometheus::Gauge& sessions_;
  prometheus::Gauge& session_bytes_;
  prometheus::Counter& rounds_;
  prometheus::Counter& nodes_;
  prometheus::Histogram& draft_seconds_;
  prometheus::Gauge& scopes_;
  prometheus::Counter& scopes_evicted_;
  prometheus::Gauge& history_tokens_;
  prometheus::Gauge& pool_phrases_;
  prometheus::Gauge& shared_bytes_;
  prometheus::Counter& history_hits_;
  prometheus::Counter& history_misses_;
  prometheus::Counter& pool_hits_;
  prometheus::Counter& pool_misses_;
  prometheus::Gauge& redis_up_;
  std::map<absl::StatusCode, prometheus::Counter*> failed_;
  std::map<WarmEvent, prometheus::Counter*> events_;
  absl::Mutex mu_;
  ScopeTotals exported_ ABSL_GUARDED_BY(mu_);
};

}  // namespace foretoken::trie_drafter

#endif  // FORETOKEN_SERVICES_TRIE_DRAFTER_ADAPTERS_TRIE_METRICS_H_
