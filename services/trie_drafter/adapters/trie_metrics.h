// The trie drafter's metrics. Thread-safe.
#ifndef FORETOKEN_SERVICES_TRIE_DRAFTER_ADAPTERS_TRIE_METRICS_H_
#define FORETOKEN_SERVICES_TRIE_DRAFTER_ADAPTERS_TRIE_METRICS_H_

#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/drafting/observed_draft_sessions.h"
#include "common/metrics/registry.h"
#include "common/rpc/stream_server.h"
#include "services/trie_drafter/adapters/redis_warm_store.h"
#include "services/trie_drafter/core/trie_sessions.h"

namespace foretoken::trie_drafter {

class TrieMetrics final : public rpc::StreamObserver,
                          public DraftObserver,
                          public TrieObserver,
                          public WarmStoreObserver {
 public:
  explicit TrieMetrics(metrics::Registry& registry);

  void OnStreams(int open) override { streams_.Set(open); }
  void OnAnswer(const DraftAnswer& answer) override;
  // A stream error is reported by one of the two observers, never both.
  void OnFailed(absl::StatusCode code) override { failed_.Increment(code); }

  void OnSessions(int64_t open, int64_t bytes) override;
  void OnScopes(const ScopeTotals& totals) override;
  void OnLookup(Lookup what, bool hit) override;

  void OnUp(bool up) override { redis_up_.Set(up ? 1 : 0); }
  void OnEvent(WarmEvent event) override;

 private:
  metrics::Registry& registry_;
  prometheus::Gauge& streams_ = registry_.GetGauge(metrics::kTrieStreams);
  prometheus::Gauge& sessions_ = registry_.GetGauge(metrics::kTrieSessions);
  prometheus::Gauge& session_bytes_ =
      registry_.GetGauge(metrics::kTrieSessionBytes);
  prometheus::Counter& rounds_ = registry_.GetCounter(metrics::kTrieRounds);
  prometheus::Counter& nodes_ = registry_.GetCounter(metrics::kTrieNodes);
  prometheus::Histogram& draft_seconds_ =
      registry_.GetHistogram(metrics::kTrieDraftLatency);
  prometheus::Gauge& scopes_ = registry_.GetGauge(metrics::kTrieScopes);
  prometheus::Counter& scopes_evicted_ =
      registry_.GetCounter(metrics::kTrieScopesEvicted);
  prometheus::Gauge& history_tokens_ =
      registry_.GetGauge(metrics::kTrieHistoryTokens);
  prometheus::Gauge& pool_phrases_ =
      registry_.GetGauge(metrics::kTriePoolPhrases);
  prometheus::Gauge& prior_tokens_ =
      registry_.GetGauge(metrics::kTriePriorTokens);
  prometheus::Gauge& prior_bytes_ =
      registry_.GetGauge(metrics::kTriePriorBytes);
  prometheus::Counter& compactions_ =
      registry_.GetCounter(metrics::kTriePriorCompactions);
  prometheus::Gauge& shared_bytes_ =
      registry_.GetGauge(metrics::kTrieSharedBytes);
  prometheus::Counter& history_hits_ =
      registry_.GetCounter(metrics::kTrieLookups, "history_hit");
  prometheus::Counter& history_misses_ =
      registry_.GetCounter(metrics::kTrieLookups, "history_miss");
  prometheus::Counter& pool_hits_ =
      registry_.GetCounter(metrics::kTrieLookups, "pool_hit");
  prometheus::Counter& pool_misses_ =
      registry_.GetCounter(metrics::kTrieLookups, "pool_miss");
  prometheus::Gauge& redis_up_ = registry_.GetGauge(metrics::kRedisUp);
  metrics::CodeCounters failed_{registry_, metrics::kTrieSessionsFailed};
  std::map<WarmEvent, prometheus::Counter*> events_;
  absl::Mutex mu_;
  ScopeTotals exported_ ABSL_GUARDED_BY(mu_);
};

inline TrieMetrics::TrieMetrics(metrics::Registry& registry)
    : registry_(registry) {
  for (const auto& [event, name] : {
           std::pair(WarmEvent::kLoaded, "loaded"),
           std::pair(WarmEvent::kEmpty, "empty"),
           std::pair(WarmEvent::kLoadFailed, "load_failed"),
           std::pair(WarmEvent::kRecordRefused, "record_refused"),
           std::pair(WarmEvent::kWritten, "written"),
           std::pair(WarmEvent::kWriteFailed, "write_failed"),
           std::pair(WarmEvent::kDropped, "dropped"),
       }) {
    events_[event] = &registry.GetCounter(metrics::kWarmStart, name);
  }
}

inline void TrieMetrics::OnAnswer(const DraftAnswer& answer) {
  rounds_.Increment();
  nodes_.Increment(answer.tree.size());
  draft_seconds_.Observe(absl::ToDoubleSeconds(answer.draft_time));
}

inline void TrieMetrics::OnSessions(int64_t open, int64_t bytes) {
  sessions_.Increment(static_cast<double>(open));
  session_bytes_.Increment(static_cast<double>(bytes));
}

inline void TrieMetrics::OnScopes(const ScopeTotals& totals) {
  absl::MutexLock lock(&mu_);
  if (totals.changes < exported_.changes) return;
  scopes_.Set(static_cast<double>(totals.scopes));
  history_tokens_.Set(static_cast<double>(totals.history_tokens));
  pool_phrases_.Set(static_cast<double>(totals.phrases));
  prior_tokens_.Set(static_cast<double>(totals.prior_tokens));
  prior_bytes_.Set(static_cast<double>(totals.prior_bytes));
  compactions_.Increment(
      static_cast<double>(totals.compactions - exported_.compactions));
  shared_bytes_.Set(static_cast<double>(totals.bytes));
  scopes_evicted_.Increment(
      static_cast<double>(totals.evicted - exported_.evicted));
  exported_ = totals;
}

inline void TrieMetrics::OnLookup(Lookup what, bool hit) {
  if (what == Lookup::kHistory) {
    (hit ? history_hits_ : history_misses_).Increment();
  } else {
    (hit ? pool_hits_ : pool_misses_).Increment();
  }
}

inline void TrieMetrics::OnEvent(WarmEvent event) {
  events_.at(event)->Increment();
}

}  // namespace foretoken::trie_drafter

#endif  // FORETOKEN_SERVICES_TRIE_DRAFTER_ADAPTERS_TRIE_METRICS_H_
