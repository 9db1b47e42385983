// The draft worker's metrics: numbers of engine and streams to Prometheus.
// Thread-safe.
#ifndef FORETOKEN_SERVICES_DRAFT_WORKER_ADAPTERS_DRAFT_METRICS_H_
#define FORETOKEN_SERVICES_DRAFT_WORKER_ADAPTERS_DRAFT_METRICS_H_

#include <map>

#include "absl/status/status.h"
#include "common/metrics/registry.h"
#include "common/rpc/draft_stream.h"
#include "services/draft_worker/core/draft_engine.h"

namespace foretoken::draft_worker {

class DraftMetrics final : public rpc::DraftStreamObserver {
 public:
  explicit DraftMetrics(metrics::Registry& registry);

  // The engine thread's alone.
  void OnChange(const DraftSnapshot& snapshot);

  void OnStreams(int open) override;
  void OnAnswer(const DraftAnswer& answer) override;
  void OnFailed(absl::StatusCode code) override;

 private:
  // A counter and the engine's sum that it shows.
  struct Sum {
    prometheus::Counter* counter;
    int64_t shown = 0;

    void Set(int64_t now) {
      counter->Increment(static_cast<double>(now - shown));
      shown = now;
    }
  };

  prometheus::Gauge& streams_;
  prometheus::Gauge& sessions_;
  prometheus::Gauge& queue_;
  prometheus::Gauge& pages_;
  prometheus::Gauge& pages_free_;
  prometheus::Gauge& pool_phrases_;
  prometheus::Histogram& pass_seconds_;
  prometheus::Histogram& pass_rows_;
  prometheus::Histogram& draft_seconds_;
  std::map<absl::StatusCode, prometheus::Counter*> failed_;
  Sum muted_;
  Sum passes_;
  Sum text_rows_;
  Sum kept_rows_;
  Sum prefix_reused_;
  Sum drafts_;
  Sum draft_tokens_;
  Sum made_;
  Sum tried_;
  Sum inspired_;
  Sum refined_;
  Sum phrase_tokens_;
};

}  // namespace foretoken::draft_worker

#endif  // FORETOKEN_SERVICES_DRAFT_WORKER_ADAPTERS_DRAFT_METRICS_H_
