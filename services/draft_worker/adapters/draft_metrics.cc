#include "services/draft_worker/adapters/draft_metrics.h"

#include "common/metrics/draft_worker_catalog.h"
#include "common/rpc/status.h"

namespace foretoken::draft_worker {

namespace m = ::foretoken::metrics;

DraftMetrics::DraftMetrics(metrics::Registry& registry)
    : streams_(registry.GetGauge(m::kDraftWorkerStreams)),
      sessions_(registry.GetGauge(m::kDraftWorkerSessions)),
      queue_(registry.GetGauge(m::kDraftWorkerQueue)),
      pages_(registry.GetGauge(m::kDraftWorkerPages)),
      pages_free_(registry.GetGauge(m::kDraftWorkerPagesFree)),
      pool_phrases_(registry.GetGauge(m::kDraftWorkerPoolPhrases)),
      pass_seconds_(registry.GetHistogram(m::kDraftWorkerPassLatency, "")),
      pass_rows_(registry.GetHistogram(m::kDraftWorkerPassRows, "")),
      draft_seconds_(registry.GetHistogram(m::kDraftWorkerDraftLatency, "")),
      muted_{&registry.GetCounter(m::kDraftWorkerMuted, "")},
      passes_{&registry.GetCounter(m::kDraftWorkerPasses, "")},
      text_rows_{&registry.GetCounter(m::kDraftWorkerTextRows, "")},
      kept_rows_{&registry.GetCounter(m::kDraftWorkerKeptRows, "")},
      prefix_reused_{&registry.GetCounter(m::kDraftWorkerPrefixReused, "")},
      drafts_{&registry.GetCounter(m::kDraftWorkerDrafts, "")},
      draft_tokens_{&registry.GetCounter(m::kDraftWorkerDraftTokens, "")},
      made_{&registry.GetCounter(m::kDraftWorkerPhrases, "made")},
      tried_{&registry.GetCounter(m::kDraftWorkerPhrases, "tried")},
      inspired_{&registry.GetCounter(m::kDraftWorkerPhrases, "inspired")},
      refined_{&registry.GetCounter(m::kDraftWorkerPhrases, "refined")},
      phrase_tokens_{&registry.GetCounter(m::kDraftWorkerPhraseTokens, "")} {
  for (int code = 1; code <= 16; ++code) {
    const auto status_code = static_cast<absl::StatusCode>(code);
    failed_[status_code] = &registry.GetCounter(m::kDraftWorkerSessionsFailed,
                                                rpc::CodeName(status_code));
  }
}

void DraftMetrics::OnChange(const DraftSnapshot& snapshot) {
  sessions_.Set(static_cast<double>(snapshot.sessions));
  queue_.Set(static_cast<double>(snapshot.queue_length));
  pages_.Set(static_cast<double>(snapshot.kv.pages_total));
  pages_free_.Set(static_cast<double>(snapshot.kv.pages_free));
  pool_phrases_.Set(static_cast<double>(snapshot.pool_phrases));
  const DraftEngineTotals& totals = snapshot.totals;
  muted_.Set(totals.muted);
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

void DraftMetrics::OnStreams(int open) { streams_.Set(open); }

void DraftMetrics::OnAnswer(const DraftAnswer& answer) {
  draft_seconds_.Observe(absl::ToDoubleSeconds(answer.draft_time));
}

void DraftMetrics::OnFailed(absl::StatusCode code) {
  const auto found = failed_.find(code);
  if (found != failed_.end()) found->second->Increment();
}

}  // namespace foretoken::draft_worker
