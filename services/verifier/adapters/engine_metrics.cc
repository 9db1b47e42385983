#include "services/verifier/adapters/engine_metrics.h"

namespace foretoken::verifier {

void EngineMetrics::OnChange(const VerifySnapshot& snapshot) {
  sessions_.Set(static_cast<double>(snapshot.sessions));
  queue_.Set(static_cast<double>(snapshot.queue_length));
  pages_total_.Set(static_cast<double>(snapshot.kv.pages_total));
  pages_free_.Set(static_cast<double>(snapshot.kv.pages_free));
  pages_cached_.Set(static_cast<double>(snapshot.kv.pages_cached));
  const EngineTotals& totals = snapshot.totals;
  passes_.Set(totals.passes);
  prefix_reused_.Set(totals.reused_tokens);
  preemptions_.Set(totals.preemptions);
  replays_.Set(totals.replays);
  if (snapshot.last_pass.rows == 0) return;
  pass_seconds_.Observe(absl::ToDoubleSeconds(snapshot.last_pass.forward_time));
  pass_rows_.Observe(snapshot.last_pass.rows);
}

}  // namespace foretoken::verifier
