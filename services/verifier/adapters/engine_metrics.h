// The verifier's metrics. Thread-safe; OnChange belongs to the engine thread.
#ifndef FORETOKEN_SERVICES_VERIFIER_ADAPTERS_ENGINE_METRICS_H_
#define FORETOKEN_SERVICES_VERIFIER_ADAPTERS_ENGINE_METRICS_H_

#include "absl/status/status.h"
#include "common/metrics/registry.h"
#include "common/rpc/stream_server.h"
#include "services/verifier/core/verify_engine.h"

namespace foretoken::verifier {

class EngineMetrics final : public rpc::StreamObserver {
 public:
  explicit EngineMetrics(metrics::Registry& registry) : registry_(registry) {}

  void OnChange(const VerifySnapshot& snapshot);

  void OnStreams(int open) override { streams_.Set(open); }
  void OnFailed(absl::StatusCode code) override { failed_.Increment(code); }

 private:
  metrics::Registry& registry_;
  prometheus::Gauge& sessions_ = registry_.GetGauge(metrics::kSessions);
  prometheus::Gauge& streams_ = registry_.GetGauge(metrics::kStreams);
  prometheus::Gauge& queue_ = registry_.GetGauge(metrics::kEngineQueue);
  prometheus::Gauge& pages_total_ = registry_.GetGauge(metrics::kKvPagesTotal);
  prometheus::Gauge& pages_free_ = registry_.GetGauge(metrics::kKvPagesFree);
  prometheus::Gauge& pages_cached_ =
      registry_.GetGauge(metrics::kKvPagesCached);
  metrics::TotalCounter passes_{registry_, metrics::kPasses};
  metrics::TotalCounter prefix_reused_{registry_, metrics::kPrefixReused};
  metrics::TotalCounter preemptions_{registry_, metrics::kPreemptions};
  metrics::TotalCounter replays_{registry_, metrics::kReplays};
  prometheus::Histogram& pass_seconds_ =
      registry_.GetHistogram(metrics::kPassLatency);
  prometheus::Histogram& pass_rows_ =
      registry_.GetHistogram(metrics::kPassRows);
  metrics::CodeCounters failed_{registry_, metrics::kSessionsFailed};
};

}  // namespace foretoken::verifier

#endif  // FORETOKEN_SERVICES_VERIFIER_ADAPTERS_ENGINE_METRICS_H_
