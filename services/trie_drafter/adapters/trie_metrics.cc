#include "services/trie_drafter/adapters/trie_metrics.h"

#include <utility>

#include "common/rpc/status.h"

namespace foretoken::trie_drafter {

namespace m = ::foretoken::metrics;

TrieMetrics::TrieMetrics(metrics::Registry& registry)
    : streams_(registry.GetGauge(m::kTrieStreams)),
      sessions_(registry.GetGauge(m::kTrieSessions)),
      session_bytes_(registry.GetGauge(m::kTrieSessionBytes)),
      rounds_(registry.GetCounter(m::kTrieRounds, "")),
      nodes_(registry.GetCounter(m::kTrieNodes, "")),
      draft_seconds_(registry.GetHistogram(m::kTrieDraftLatency, "")),
      scopes_(registry.GetGauge(m::kTrieScopes)),
      scopes_evicted_(registry.GetCounter(m::kTrieScopesEvicted, "")),
      history_tokens_(registry.GetGauge(m::kTrieHistoryTokens)),
      pool_phrases_(registry.GetGauge(m::kTriePoolPhrases)),
      shared_bytes_(registry.GetGauge(m::kTrieSharedBytes)),
      history_hits_(registry.GetCounter(m::kTrieLookups, "history_hit")),
      history_misses_(registry.GetCounter(m::kTrieLookups, "history_miss")),
      pool_hits_(registry.GetCounter(m::kTrieLookups, "pool_hit")),
      pool_misses_(registry.GetCounter(m::kTrieLookups, "pool_miss")),
      redis_up_(registry.GetGauge(m::kRedisUp)) {
  for (int code = 1; code <= 16; ++code) {
    const auto status_code = static_cast<absl::StatusCode>(code);
    failed_[status_code] = &registry.GetCounter(m::kTrieSessionsFailed,
                                                rpc::CodeName(status_code));
  }
  for (const auto& [event, name] : {
           std::pair(WarmEvent::kLoaded, "loaded"),
           std::pair(WarmEvent::kEmpty, "empty"),
           std::pair(WarmEvent::kLoadFailed, "load_failed"),
           std::pair(WarmEvent::kRecordRefused, "record_refused"),
           std::pair(WarmEvent::kWritten, "written"),
           std::pair(WarmEvent::kWriteFailed, "write_failed"),
           std::pair(WarmEvent::kDropped, "dropped"),
       }) {
    events_[event] = &registry.GetCounter(m::kWarmStart, name);
  }
}

void TrieMetrics::OnStreams(int open) { streams_.Set(open); }

void TrieMetrics::OnAnswer(const DraftAnswer& answer) {
  rounds_.Increment();
  nodes_.Increment(answer.tree.size());
  draft_seconds_.Observe(absl::ToDoubleSeconds(answer.draft_time));
}

void TrieMetrics::OnFailed(absl::StatusCode code) {
  const auto found = failed_.find(code);
  if (found != failed_.end()) found->second->Increment();
}

void TrieMetrics::OnSessions(int64_t open, int64_t bytes) {
  sessions_.Increment(static_cast<double>(open));
  session_bytes_.Increment(static_cast<double>(bytes));
}

void TrieMetrics::OnScopes(const ScopeTotals& totals) {
  absl::MutexLock lock(&mu_);
  if (totals.changes < exported_.changes) return;
  scopes_.Set(static_cast<double>(totals.scopes));
  history_tokens_.Set(static_cast<double>(totals.history_tokens));
  pool_phrases_.Set(static_cast<double>(totals.phrases));
  shared_bytes_.Set(static_cast<double>(totals.bytes));
  scopes_evicted_.Increment(
      static_cast<double>(totals.evicted - exported_.evicted));
  exported_ = totals;
}

void TrieMetrics::OnLookup(Lookup what, bool hit) {
  if (what == Lookup::kHistory) {
    (hit ? history_hits_ : history_misses_).Increment();
  } else {
    (hit ? pool_hits_ : pool_misses_).Increment();
  }
}

void TrieMetrics::OnUp(bool up) { redis_up_.Set(up ? 1 : 0); }

void TrieMetrics::OnEvent(WarmEvent event) { events_.at(event)->Increment(); }

}  // namespace foretoken::trie_drafter
