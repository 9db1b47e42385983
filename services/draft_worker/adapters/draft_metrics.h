// The draft worker's metrics. Thread-safe; OnChange belongs to the engine
// thread.
#ifndef FORETOKEN_SERVICES_DRAFT_WORKER_ADAPTERS_DRAFT_METRICS_H_
#define FORETOKEN_SERVICES_DRAFT_WORKER_ADAPTERS_DRAFT_METRICS_H_

#include "absl/status/status.h"
#include "common/drafting/observed_draft_sessions.h"
#include "common/metrics/registry.h"
#include "common/rpc/stream_server.h"
#include "services/draft_worker/core/draft_engine.h"

namespace foretoken::draft_worker {

class DraftMetrics final : public rpc::StreamObserver, public DraftObserver {
 public:
  explicit DraftMetrics(metrics::Registry& registry) : registry_(registry) {}

  void OnChange(const DraftSnapshot& snapshot);
  void OnHang(bool hangs) { hangs_.Set(hangs ? 1 : 0); }

  void OnStreams(int open) override { streams_.Set(open); }
  void OnAnswer(const DraftAnswer& answer) override;
  // A stream error is reported by one of the two observers, never both.
  void OnFailed(absl::StatusCode code) override { failed_.Increment(code); }

 private:
  metrics::Registry& registry_;
  prometheus::Gauge& streams_ =
      registry_.GetGauge(metrics::kDraftWorkerStreams);
  prometheus::Gauge& sessions_ =
      registry_.GetGauge(metrics::kDraftWorkerSessions);
  prometheus::Gauge& queue_ = registry_.GetGauge(metrics::kDraftWorkerQueue);
  prometheus::Gauge& hangs_ = registry_.GetGauge(metrics::kDraftWorkerHangs);
  prometheus::Gauge& pages_ = registry_.GetGauge(metrics::kDraftWorkerPages);
  prometheus::Gauge& pages_free_ =
      registry_.GetGauge(metrics::kDraftWorkerPagesFree);
  prometheus::Gauge& pool_phrases_ =
      registry_.GetGauge(metrics::kDraftWorkerPoolPhrases);
  prometheus::Histogram& pass_seconds_ =
      registry_.GetHistogram(metrics::kDraftWorkerPassLatency);
  prometheus::Histogram& pass_rows_ =
      registry_.GetHistogram(metrics::kDraftWorkerPassRows);
  prometheus::Histogram& draft_seconds_ =
      registry_.GetHistogram(metrics::kDraftWorkerDraftLatency);
  metrics::CodeCounters failed_{registry_, metrics::kDraftWorkerSessionsFailed};
  metrics::TotalCounter muted_{registry_, metrics::kDraftWorkerMuted};
  metrics::TotalCounter vocabulary_misses_{
      registry_, metrics::kDraftWorkerVocabularyMisses};
  metrics::TotalCounter passes_{registry_, metrics::kDraftWorkerPasses};
  metrics::TotalCounter text_rows_{registry_, metrics::kDraftWorkerTextRows};
  metrics::TotalCounter kept_rows_{registry_, metrics::kDraftWorkerKeptRows};
  metrics::TotalCounter prefix_reused_{registry_,
                                       metrics::kDraftWorkerPrefixReused};
  metrics::TotalCounter drafts_{registry_, metrics::kDraftWorkerDrafts};
  metrics::TotalCounter draft_tokens_{registry_,
                                      metrics::kDraftWorkerDraftTokens};
  metrics::TotalCounter made_{registry_, metrics::kDraftWorkerPhrases, "made"};
  metrics::TotalCounter tried_{registry_, metrics::kDraftWorkerPhrases,
                               "tried"};
  metrics::TotalCounter inspired_{registry_, metrics::kDraftWorkerPhrases,
                                  "inspired"};
  metrics::TotalCounter refined_{registry_, metrics::kDraftWorkerPhrases,
                                 "refined"};
  metrics::TotalCounter phrase_tokens_{registry_,
                                       metrics::kDraftWorkerPhraseTokens};
};

inline void DraftMetrics::OnChange(const DraftSnapshot& snapshot) {
  sessions_.Set(static_cast<double>(snapshot.sessions));
  queue_.Set(static_cast<double>(snapshot.queue_length));
  pages_.Set(static_cast<double>(snapshot.kv.pages_total));
  pages_free_.Set(static_cast<double>(snapshot.kv.pages_free));
  pool_phrases_.Set(static_cast<double>(snapshot.pool_phrases));
  const DraftEngineTotals& totals = snapshot.totals;
  muted_.Set(totals.muted);
  vocabulary_misses_.Set(totals.vocabulary_misses);
  passes_.Set(totals.passes);
  text_rows_.Set(totals.text_rows);
  kept_rows_.Set(totals.kept_rows);
  prefix_reused_.Set(totals.reused_tokens);
  drafts_.Set(totals.drafts);
  draft_tokens_.Set(totals.draft_tokens);
  made_.Set(totals.modes.phrases_made);
  tried_.Set(totals.modes.phrases_tried);
  inspired_.Set(totals.modes.inspired);
  refined_.Set(totals.modes.refined);
  phrase_tokens_.Set(totals.modes.phrase_tokens);
  if (snapshot.last_pass.rows == 0) return;
  pass_seconds_.Observe(absl::ToDoubleSeconds(snapshot.last_pass.forward_time));
  pass_rows_.Observe(snapshot.last_pass.rows);
}

inline void DraftMetrics::OnAnswer(const DraftAnswer& answer) {
  draft_seconds_.Observe(absl::ToDoubleSeconds(answer.draft_time));
}

}  // namespace foretoken::draft_worker

#endif  // FORETOKEN_SERVICES_DRAFT_WORKER_ADAPTERS_DRAFT_METRICS_H_
