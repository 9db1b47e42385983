#include "services/crest/adapters/crest_metrics.h"

#include "absl/strings/str_cat.h"
#include "common/rpc/status.h"

namespace foretoken::crest {

namespace m = ::foretoken::metrics;

CrestMetrics::CrestMetrics(metrics::Registry& registry,
                           const std::vector<std::string>& datastores)
    : errors_(registry.GetCounter(m::kCrestLookups, "error")),
      memory_seconds_(registry.GetHistogram(m::kCrestLookupLatency, "memory")),
      postgres_seconds_(
          registry.GetHistogram(m::kCrestLookupLatency, "postgres")),
      cache_hits_(registry.GetCounter(m::kCrestCacheLookups, "hit")),
      cache_misses_(registry.GetCounter(m::kCrestCacheLookups, "miss")),
      streams_(registry.GetGauge(m::kCrestStreams)) {
  for (int n = 0; n <= kMaxCrestN; ++n) {
    found_[n] = &registry.GetCounter(m::kCrestLookups,
                                     n == 0 ? "miss" : absl::StrCat("hit_", n));
  }
  for (const std::string& name : datastores) {
    datastores_[name] = {&registry.GetGauge(m::kCrestVersion, name),
                         &registry.GetGauge(m::kCrestReady, name),
                         &registry.GetCounter(m::kCrestSwitches, name),
                         &registry.GetCounter(m::kCrestFailedLoads, name)};
  }
  for (int code = 0; code <= 16; ++code) {
    const auto status_code = static_cast<absl::StatusCode>(code);
    ingests_[status_code] =
        &registry.GetCounter(m::kCrestIngests, rpc::CodeName(status_code));
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

void CrestMetrics::IngestEnded(absl::StatusCode code) {
  const auto found = ingests_.find(code);
  if (found != ingests_.end()) found->second->Increment();
}

}  // namespace foretoken::crest
