// The orchestrator's metrics. Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_GENERATION_METRICS_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_GENERATION_METRICS_H_

#include <array>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/metrics/registry.h"
#include "common/speculation/round.h"
#include "services/orchestrator/core/generation_service.h"

namespace foretoken::orchestrator {

class GenerationMetrics final : public GenerationObserver {
 public:
  explicit GenerationMetrics(metrics::Registry& registry);

  void OnRequest() override { running_.Increment(); }
  void OnPrefill(const GenerationSummary& summary) override;
  void OnRound(const RoundReport& round) override;
  void OnFailovers(int64_t count) override;
  // `latency` is recorded only for served requests.
  void OnEnd(absl::StatusCode code, absl::Duration latency) override;

 private:
  metrics::Registry& registry_;
  metrics::CodeCounters ended_{registry_, metrics::kRequests,
                               metrics::CodeCounters::kWithOk};
  prometheus::Gauge& running_ = registry_.GetGauge(metrics::kRequestsRunning);
  prometheus::Counter& prompt_tokens_ =
      registry_.GetCounter(metrics::kPromptTokens);
  prometheus::Counter& generation_tokens_ =
      registry_.GetCounter(metrics::kGenerationTokens);
  prometheus::Histogram& first_token_ =
      registry_.GetHistogram(metrics::kTimeToFirstToken);
  prometheus::Histogram& inter_token_ =
      registry_.GetHistogram(metrics::kInterTokenLatency);
  prometheus::Histogram& latency_ =
      registry_.GetHistogram(metrics::kRequestLatency);
  prometheus::Counter& rounds_ = registry_.GetCounter(metrics::kRounds);
  prometheus::Counter& drafts_ = registry_.GetCounter(metrics::kNumDrafts);
  prometheus::Counter& draft_tokens_ =
      registry_.GetCounter(metrics::kNumDraftTokens);
  prometheus::Counter& accepted_tokens_ =
      registry_.GetCounter(metrics::kNumAcceptedTokens);
  std::vector<prometheus::Counter*> accepted_at_;
  struct OfDrafter {
    prometheus::Counter* drafted;
    prometheus::Counter* accepted;
    prometheus::Histogram* latency;
    // Indexed by outcome; null for outcomes that are not failures.
    std::array<prometheus::Counter*, kOutcomeNames.size()> degraded;
  };
  std::array<OfDrafter, kAskedDrafters> drafters_;
  prometheus::Histogram& draft_seconds_ =
      registry_.GetHistogram(metrics::kPhaseLatency, "draft");
  prometheus::Histogram& verify_seconds_ =
      registry_.GetHistogram(metrics::kPhaseLatency, "verify");
  prometheus::Histogram& tree_nodes_ =
      registry_.GetHistogram(metrics::kTreeNodes);
  prometheus::Counter& failovers_ = registry_.GetCounter(metrics::kFailovers);
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_GENERATION_METRICS_H_
