// The verifier's metrics: engine numbers to Prometheus.
// Thread-safe.
#ifndef FORETOKEN_SERVICES_VERIFIER_ADAPTERS_ENGINE_METRICS_H_
#define FORETOKEN_SERVICES_VERIFIER_ADAPTERS_ENGINE_METRICS_H_

#include <map>

#include "absl/status/status.h"
#include "common/metrics/registry.h"
#include "services/verifier/core/verify_engine.h"

namespace foretoken::verifier {

class EngineMetrics {
 public:
  explicit EngineMetrics(metrics::Registry& registry);

  // The engine thread's alone.
  void OnChange(const VerifySnapshot& snapshot);

  void SetStreams(int32_t streams);
  // A session ended with an error.
  void Failed(absl::StatusCode code);

 private:
  prometheus::Gauge& sessions_;
  prometheus::Gauge& streams_;
  prometheus::Gauge& queue_;
  prometheus::Gauge& pages_total_;
  prometheus::Gauge& pages_free_;
  prometheus::Gauge& pages_cached_;
  prometheus::Counter& passes_;
  prometheus::Counter& prefix_reused_;
  prometheus::Counter& preemptions_;
  prometheus::Counter& replays_;
  prometheus::Histogram& pass_seconds_;
  prometheus::Histogram& pass_rows_;
  std::map<absl::StatusCode, prometheus::Counter*> failed_;
  EngineTotals exported_;  // what the counters hold
};

}  // namespace foretoken::verifier

#endif  // FORETOKEN_SERVICES_VERIFIER_ADAPTERS_ENGINE_METRICS_H_
