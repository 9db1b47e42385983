#include "services/trie_drafter/adapters/trie_metrics.h"

#include <utility>

namespace foretoken::trie_drafter {

TrieMetrics::TrieMetrics(metrics::Registry& registry) : registry_(registry) {
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

void TrieMetrics::OnAnswer(const DraftAnswer& answer) {
  rounds_.Increment();
  nodes_.Increment(answer.tree.size());
  draft_seconds_.Observe(absl::ToDoubleSeconds(answer.draft_time));
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

void TrieMetrics::OnEvent(WarmEvent event) { events_.at(event)->Increment(); }

}  // namespace foretoken::trie_drafter
