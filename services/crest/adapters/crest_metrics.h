// The crest service's metrics. Thread-safe.
#ifndef FORETOKEN_SERVICES_CREST_ADAPTERS_CREST_METRICS_H_
#define FORETOKEN_SERVICES_CREST_ADAPTERS_CREST_METRICS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/drafting/crest/crest_record.h"
#include "common/metrics/registry.h"
#include "common/rpc/stream_server.h"
#include "services/crest/core/crest_sessions.h"

namespace foretoken::crest {

class CrestMetrics final : public LookupObserver, public rpc::StreamObserver {
 public:
  // `datastores`: the names of the configuration.
  CrestMetrics(metrics::Registry& registry,
               const std::vector<std::string>& datastores);

  void LookedUpInMemory(int n, absl::Duration took) override;
  void LookedUpInPostgres(int n, bool cached, absl::Duration took) override;
  void LookupFailed() override { errors_.Increment(); }

  void OnStreams(int open) override { streams_.Set(open); }
  void OnFailed(absl::StatusCode) override {}  // look-ups are counted instead
  void SetReady(const std::string& datastore, bool ready);
  void Switched(const std::string& datastore, int64_t version);
  void LoadFailed(const std::string& datastore);
  void IngestEnded(absl::StatusCode code) { ingests_.Increment(code); }

 private:
  struct PerDatastore {
    prometheus::Gauge* version;
    prometheus::Gauge* ready;
    prometheus::Counter* switches;
    prometheus::Counter* failed_loads;
  };

  // A MemoryStore may match more tokens than any n-gram has.
  void Found(int n) { found_[std::min(n, kMaxCrestN)]->Increment(); }

  metrics::Registry& registry_;
  std::array<prometheus::Counter*, kMaxCrestN + 1> found_;  // [n], 0: miss
  prometheus::Counter& errors_ =
      registry_.GetCounter(metrics::kCrestLookups, "error");
  prometheus::Histogram& memory_seconds_ =
      registry_.GetHistogram(metrics::kCrestLookupLatency, "memory");
  prometheus::Histogram& postgres_seconds_ =
      registry_.GetHistogram(metrics::kCrestLookupLatency, "postgres");
  prometheus::Counter& cache_hits_ =
      registry_.GetCounter(metrics::kCrestCacheLookups, "hit");
  prometheus::Counter& cache_misses_ =
      registry_.GetCounter(metrics::kCrestCacheLookups, "miss");
  prometheus::Gauge& serving_ = registry_.GetGauge(metrics::kCrestDatastores);
  prometheus::Gauge& streams_ = registry_.GetGauge(metrics::kCrestStreams);
  std::map<std::string, PerDatastore> datastores_;
  metrics::CodeCounters ingests_{registry_, metrics::kCrestIngests,
                                 metrics::CodeCounters::kWithOk};
};

inline CrestMetrics::CrestMetrics(metrics::Registry& registry,
                                  const std::vector<std::string>& datastores)
    : registry_(registry) {
  for (int n = 0; n <= kMaxCrestN; ++n) {
    found_[n] = &registry.GetCounter(metrics::kCrestLookups,
                                     n == 0 ? "miss" : absl::StrCat("hit_", n));
  }
  for (const std::string& name : datastores) {
    datastores_[name] = {
        &registry.GetGauge(metrics::kCrestVersion, name),
        &registry.GetGauge(metrics::kCrestReady, name),
        &registry.GetCounter(metrics::kCrestSwitches, name),
        &registry.GetCounter(metrics::kCrestFailedLoads, name)};
  }
}

inline void CrestMetrics::LookedUpInMemory(int n, absl::Duration took) {
  Found(n);
  memory_seconds_.Observe(absl::ToDoubleSeconds(took));
}

inline void CrestMetrics::LookedUpInPostgres(int n, bool cached,
                                             absl::Duration took) {
  Found(n);
  (cached ? cache_hits_ : cache_misses_).Increment();
  postgres_seconds_.Observe(absl::ToDoubleSeconds(took));
}

inline void CrestMetrics::SetReady(const std::string& datastore, bool ready) {
  datastores_.at(datastore).ready->Set(ready ? 1 : 0);
}

inline void CrestMetrics::Switched(const std::string& datastore,
                                   int64_t version) {
  const PerDatastore& metrics = datastores_.at(datastore);
  if (metrics.version->Value() == 0) serving_.Increment();
  metrics.version->Set(static_cast<double>(version));
  metrics.switches->Increment();
}

inline void CrestMetrics::LoadFailed(const std::string& datastore) {
  datastores_.at(datastore).failed_loads->Increment();
}

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_ADAPTERS_CREST_METRICS_H_
