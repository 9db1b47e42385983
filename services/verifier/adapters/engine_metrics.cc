#include "services/verifier/adapters/engine_metrics.h"

#include "common/rpc/status.h"

namespace foretoken::verifier {

namespace m = ::foretoken::metrics;

EngineMetrics::EngineMetrics(metrics::Registry& registry)
    : sessions_(registry.GetGauge(m::kSessions)),
      streams_(registry.GetGauge(m::kStreams)),
      queue_(registry.GetGauge(m::kEngineQueue)),
      pages_total_(registry.GetGauge(m::kKvPagesTotal)),
      pages_free_(registry.GetGauge(m::kKvPagesFree)),
      pages_cached_(registry.GetGauge(m::kKvPagesCached)),
      passes_(registry.GetCounter(m::kPasses, "")),
      prefix_reused_(registry.GetCounter(m::kPrefixReused, "")),
      preemptions_(registry.GetCounter(m::kPreemptions, "")),
      replays_(registry.GetCounter(m::kReplays, "")),
      pass_seconds_(registry.GetHistogram(m::kPassLatency, "")),
      pass_rows_(registry.GetHistogram(m::kPassRows, "")) {
  for (int code = 1; code <= 16; ++code) {
    const auto status_code = static_cast<absl::StatusCode>(code);
    failed_[status_code] =
        &registry.GetCounter(m::kSessionsFailed, rpc::CodeName(status_code));
  }
}

void EngineMetrics::OnChange(const VerifySnapshot& snapshot) {
  sessions_.Set(static_cast<double>(snapshot.sessions));
  queue_.Set(static_cast<double>(snapshot.queue_length));
  pages_total_.Set(static_cast<double>(snapshot.kv.pages_total));
  pages_free_.Set(static_cast<double>(snapshot.kv.pages_free));
  pages_cached_.Set(static_cast<double>(snapshot.kv.pages_cached));
  const EngineTotals& now = snapshot.totals;
  const auto add = [](prometheus::Counter& counter, int64_t after,
                      int64_t before) {
    counter.Increment(static_cast<double>(after - before));
  };
  add(passes_, now.passes, exported_.passes);
  add(prefix_reused_, now.reused_tokens, exported_.reused_tokens);
  add(preemptions_, now.preemptions, exported_.preemptions);
  add(replays_, now.replays, exported_.replays);
  exported_ = now;
  if (snapshot.last_pass.rows == 0) return;
  pass_seconds_.Observe(absl::ToDoubleSeconds(snapshot.last_pass.forward_time));
  pass_rows_.Observe(snapshot.last_pass.rows);
}

void EngineMetrics::SetStreams(int32_t streams) { streams_.Set(streams); }

void EngineMetrics::Failed(absl::StatusCode code) {
  const auto found = failed_.find(code);
  if (found != failed_.end()) found->second->Increment();
}

}  // namespace foretoken::verifier
