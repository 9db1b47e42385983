#include "services/draft_worker/adapters/draft_metrics.h"

namespace foretoken::draft_worker {

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

void DraftMetrics::OnAnswer(const DraftAnswer& answer) {
  draft_seconds_.Observe(absl::ToDoubleSeconds(answer.draft_time));
}

}  // namespace foretoken::draft_worker
