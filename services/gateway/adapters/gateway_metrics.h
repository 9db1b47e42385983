// The gateway's metrics. Thread-safe.
#ifndef FORETOKEN_SERVICES_GATEWAY_ADAPTERS_GATEWAY_METRICS_H_
#define FORETOKEN_SERVICES_GATEWAY_ADAPTERS_GATEWAY_METRICS_H_

#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/metrics/registry.h"
#include "services/gateway/adapters/beast_server.h"
#include "services/gateway/core/gateway_observer.h"

namespace foretoken::gateway {

class GatewayMetrics final : public GatewayObserver, public HttpServerObserver {
 public:
  explicit GatewayMetrics(metrics::Registry& registry) : registry_(registry) {
    for (size_t i = 0; i < kRouteNames.size(); ++i) {
      latency_[i] =
          &registry.GetHistogram(metrics::kHttpLatency, kRouteNames[i]);
      Count(static_cast<Route>(i), 200, 0);  // a page shows every endpoint
    }
  }

  void OnRequest() override { running_.Increment(); }
  void OnEnd(Route route, int status, absl::Duration latency) override {
    running_.Decrement();
    Count(route, status, 1);
    if (status == 401) unauthenticated_.Increment();
    latency_[static_cast<size_t>(route)]->Observe(
        absl::ToDoubleSeconds(latency));
  }
  void OnDelta() override { deltas_.Increment(); }
  void OnPause() override { pauses_.Increment(); }

  void OnConnections(int change) override { connections_.Increment(change); }
  void OnRejected(int status) override { Count(Route::kOther, status, 1); }

 private:
  // Statuses are those that the gateway answers: a closed set.
  void Count(Route route, int status, int requests) {
    registry_
        .GetCounter(metrics::kHttpRequests,
                    kRouteNames[static_cast<size_t>(route)],
                    absl::StrCat(status))
        .Increment(requests);
  }

  metrics::Registry& registry_;
  std::array<prometheus::Histogram*, kRouteNames.size()> latency_;
  prometheus::Gauge& running_ = registry_.GetGauge(metrics::kHttpRunning);
  prometheus::Gauge& connections_ =
      registry_.GetGauge(metrics::kHttpConnections);
  prometheus::Counter& deltas_ = registry_.GetCounter(metrics::kHttpDeltas);
  prometheus::Counter& pauses_ = registry_.GetCounter(metrics::kHttpPauses);
  prometheus::Counter& unauthenticated_ =
      registry_.GetCounter(metrics::kUnauthenticated);
};

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_ADAPTERS_GATEWAY_METRICS_H_
