// The verifier's metrics. Thread-safe; OnChange belongs to the engine thread.
#ifndef FORETOKEN_SERVICES_VERIFIER_ADAPTERS_ENGINE_METRICS_H_
#define FORETOKEN_SERVICES_VERIFIER_ADAPTERS_ENGINE_METRICS_H_

#include <array>

#include "absl/status/status.h"
#include "common/metrics/registry.h"
#include "common/rpc/stream_server.h"
#include "services/verifier/core/verify_engine.h"

namespace foretoken::verifier {

class EngineMetrics final : public rpc::StreamObserver {
 public:
  explicit EngineMetrics(metrics::Registry& registry) : registry_(registry) {
    for (size_t arm = 0; arm < kDraftArms; ++arm) {
      arm_seconds_[arm] =
          &registry_.GetCounter(metrics::kDraftArmSeconds, kDraftArmNames[arm]);
    }
  }

  void OnChange(const VerifySnapshot& snapshot);
  void OnHang(bool hangs) { hangs_.Set(hangs ? 1 : 0); }

  void OnStreams(int open) override { streams_.Set(open); }
  void OnFailed(absl::StatusCode code) override { failed_.Increment(code); }

 private:
  metrics::Registry& registry_;
  prometheus::Gauge& sessions_ = registry_.GetGauge(metrics::kSessions);
  prometheus::Gauge& streams_ = registry_.GetGauge(metrics::kStreams);
  prometheus::Gauge& queue_ = registry_.GetGauge(metrics::kEngineQueue);
  prometheus::Gauge& hangs_ = registry_.GetGauge(metrics::kEngineHangs);
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
  metrics::TotalCounter masks_{registry_, metrics::kGrammarMasks};
  prometheus::Histogram& mask_seconds_ =
      registry_.GetHistogram(metrics::kGrammarMaskLatency);
  prometheus::Gauge& grammar_bytes_ =
      registry_.GetGauge(metrics::kGrammarMemory);
  metrics::CodeCounters failed_{registry_, metrics::kSessionsFailed};
  std::array<prometheus::Counter*, kDraftArms> arm_seconds_;
  std::array<double, kDraftArms> shown_seconds_{};
};

inline void EngineMetrics::OnChange(const VerifySnapshot& snapshot) {
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
  masks_.Set(totals.masks);
  grammar_bytes_.Set(static_cast<double>(snapshot.grammar_bytes));
  for (size_t arm = 0; arm < kDraftArms; ++arm) {
    const double seconds = snapshot.guard.seconds[arm];
    arm_seconds_[arm]->Increment(seconds - shown_seconds_[arm]);
    shown_seconds_[arm] = seconds;
  }
  if (snapshot.last_pass.rows == 0) return;
  pass_seconds_.Observe(absl::ToDoubleSeconds(snapshot.last_pass.forward_time));
  pass_rows_.Observe(snapshot.last_pass.rows);
  if (snapshot.last_pass.masks == 0) return;
  mask_seconds_.Observe(absl::ToDoubleSeconds(snapshot.last_pass.mask_time));
}

}  // namespace foretoken::verifier

#endif  // FORETOKEN_SERVICES_VERIFIER_ADAPTERS_ENGINE_METRICS_H_
