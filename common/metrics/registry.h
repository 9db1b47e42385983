// Registry: the metrics of one process, and the /metrics page that shows them.
//
// Services look their children up once, at start, and keep the references;
// incrementing is lock-free (prometheus-cpp). Every metric comes from the
// catalog: a Spec of the wrong kind or label is a bug and aborts.
//
//   prometheus::Gauge& sessions = registry.GetGauge(metrics::kSessions);
//
// Thread-safe.
#ifndef FORETOKEN_COMMON_METRICS_REGISTRY_H_
#define FORETOKEN_COMMON_METRICS_REGISTRY_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/config/flags.h"
#include "common/metrics/catalog.h"
#include "common/net/page_server.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace foretoken::metrics {

// Names on the page: the catalog's, or vLLM's besides them (vllm_names.h).
enum class MetricNames { kForetoken, kVllm };

class Registry {
 public:
  // With the metrics that every process has, kProcessMetrics.
  Registry();

  // The model in the labels of vLLM's names. Called before the page is served.
  void SetModelName(const std::string& name) { model_name_ = name; }

  // The child of `spec` whose label is `value` (empty if it has no label) and
  // whose second label is `second`. The reference lives as long as the
  // registry.
  prometheus::Counter& GetCounter(const Spec& spec,
                                  const std::string& value = "",
                                  const std::string& second = "");
  prometheus::Gauge& GetGauge(const Spec& spec, const std::string& value = "");
  prometheus::Histogram& GetHistogram(const Spec& spec,
                                      const std::string& value = "");

  // Adds `total` to the counter `spec`, which has no label, whenever the page
  // is made. Totals never decrease; each is called under a lock, until the
  // registry goes.
  void AddTotal(const Spec& spec, std::function<int64_t()> total);

  // The page in Prometheus' text format.
  std::string Text(MetricNames names = MetricNames::kForetoken) const;

  std::shared_ptr<prometheus::Registry> prometheus() { return registry_; }

 private:
  struct Total {
    prometheus::Counter& counter;
    std::function<int64_t()> total;
    int64_t shown = 0;
  };

  std::shared_ptr<prometheus::Registry> registry_;
  mutable absl::Mutex mu_;
  mutable std::vector<Total> totals_ ABSL_GUARDED_BY(mu_);
  std::string model_name_ = "model";
};

// One counter per status code of a Spec with the label `code`: "OK",
// "RESOURCE_EXHAUSTED", as gRPC spells them.
class CodeCounters {
 public:
  enum Codes { kErrors, kWithOk };
  CodeCounters(Registry& registry, const Spec& spec, Codes codes = kErrors);

  // Codes without a counter are not counted.
  void Increment(absl::StatusCode code);

 private:
  std::array<prometheus::Counter*, 17> counters_{};  // [code]
};

// A counter that shows a total kept elsewhere. Thread-compatible.
class TotalCounter {
 public:
  TotalCounter(Registry& registry, const Spec& spec,
               const std::string& value = "")
      : counter_(registry.GetCounter(spec, value)) {}

  // `total` never decreases.
  void Set(int64_t total) {
    counter_.Increment(static_cast<double>(total - shown_));
    shown_ = total;
  }

 private:
  prometheus::Counter& counter_;
  int64_t shown_ = 0;
};

struct ExposerOptions {
  // HOST:PORT; "" disables the page, port 0 takes a free one.
  std::string address = "127.0.0.1:0";
  std::string names = "foretoken";  // or "vllm", beside them

  std::vector<std::string> allowed_hosts;  // see PageServerOptions

  // --metrics-listen, --metrics-names, --metrics-allowed-hosts.
  void AddFlags(Flags& flags);
};

// Serves GET /metrics of a registry until destroyed, as plain HTTP.
class Exposer {
 public:
  // Unavailable names the address that could not be bound.
  static absl::StatusOr<std::unique_ptr<Exposer>> Start(
      const ExposerOptions& options, const Registry& registry);
  // Likewise, on an address that Bind has bound before.
  static absl::StatusOr<std::unique_ptr<Exposer>> Start(
      const ExposerOptions& options, std::optional<net::BoundSocket> bound,
      const Registry& registry);
  // Binds options.address without listening; nullopt where it is empty.
  static absl::StatusOr<std::optional<net::BoundSocket>> Bind(
      const ExposerOptions& options);

  int port() const { return server_ == nullptr ? 0 : server_->port(); }

 private:
  Exposer() = default;
  std::unique_ptr<net::PageServer> server_;  // null when off
};

}  // namespace foretoken::metrics

#endif  // FORETOKEN_COMMON_METRICS_REGISTRY_H_
