// The orchestrator's metrics. Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_GENERATION_METRICS_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_GENERATION_METRICS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/metrics/registry.h"
#include "common/spec/round.h"
#include "services/orchestrator/core/decode_loop.h"

namespace foretoken::orchestrator {

class GenerationMetrics {
 public:
  explicit GenerationMetrics(metrics::Registry& registry);

  void RequestStarted();
  // `latency` counts for served requests alone.
  void RequestEnded(absl::StatusCode code, absl::Duration latency);
  void Prefilled(const GenerationSummary& summary);
  // `before` and `after`: the summary around the round.
  void RoundDone(int tree_nodes, const RoundResult& result,
                 absl::Duration draft_time, absl::Duration verify_time,
                 const GenerationSummary& before,
                 const GenerationSummary& after);
  void Failovers(int64_t count);

 private:
  std::map<absl::StatusCode, prometheus::Counter*> ended_;
  prometheus::Gauge& running_;
  prometheus::Counter& prompt_tokens_;
  prometheus::Counter& generation_tokens_;
  prometheus::Histogram& first_token_;
  prometheus::Histogram& inter_token_;
  prometheus::Histogram& latency_;
  prometheus::Counter& rounds_;
  prometheus::Counter& drafts_;
  prometheus::Counter& draft_tokens_;
  prometheus::Counter& accepted_tokens_;
  std::vector<prometheus::Counter*> accepted_at_;
  std::map<std::string, prometheus::Counter*> drafted_by_;
  std::map<std::string, prometheus::Counter*> accepted_by_;
  prometheus::Histogram& draft_seconds_;
  prometheus::Histogram& verify_seconds_;
  prometheus::Histogram& tree_nodes_;
  prometheus::Counter& failovers_;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_GENERATION_METRICS_H_
