// The orchestrator's metrics. Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_GENERATION_METRICS_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_GENERATION_METRICS_H_

#include <array>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/metrics/registry.h"
#include "common/speculation/round.h"
#include "services/orchestrator/core/decode_loop.h"

namespace foretoken::orchestrator {

class GenerationMetrics {
 public:
  explicit GenerationMetrics(metrics::Registry& registry);

  void RequestStarted();
  // `latency` counts for served requests alone.
  void RequestEnded(absl::StatusCode code, absl::Duration latency);
  void Prefilled(const GenerationSummary& summary);
  void RoundDone(const RoundReport& round);
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
  struct OfDrafter {
    prometheus::Counter* drafted;
    prometheus::Counter* accepted;
    prometheus::Histogram* latency;
    // By outcome; null for those that are no failure.
    std::array<prometheus::Counter*, kOutcomeNames.size()> degraded;
  };
  std::array<OfDrafter, kDrafterNames.size()> drafters_;
  prometheus::Histogram& draft_seconds_;
  prometheus::Histogram& verify_seconds_;
  prometheus::Histogram& tree_nodes_;
  prometheus::Counter& failovers_;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_GENERATION_METRICS_H_
