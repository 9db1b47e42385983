#include "services/crest/adapters/crest_metrics.h"

#include "absl/strings/str_cat.h"

namespace foretoken::crest {

CrestMetrics::CrestMetrics(metrics::Registry& registry,
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

void CrestMetrics::LookedUpInMemory(int n, absl::Duration took) {
  Found(n);
  memory_seconds_.Observe(absl::ToDoubleSeconds(took));
}

void CrestMetrics::LookedUpInPostgres(int n, bool cached, absl::Duration took) {
  Found(n);
  (cached ? cache_hits_ : cache_misses_).Increment();
  postgres_seconds_.Observe(absl::ToDoubleSeconds(took));
}

void CrestMetrics::SetReady(const std::string& datastore, bool ready) {
  datastores_.at(datastore).ready->Set(ready ? 1 : 0);
}

void CrestMetrics::Switched(const std::string& datastore, int64_t version) {
  const PerDatastore& metrics = datastores_.at(datastore);
  metrics.version->Set(static_cast<double>(version));
  metrics.switches->Increment();
}

void CrestMetrics::LoadFailed(const std::string& datastore) {
  datastores_.at(datastore).failed_loads->Increment();
}

}  // namespace foretoken::crest
