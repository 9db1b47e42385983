// The crest service's metrics. Thread-safe.
#ifndef FORETOKEN_SERVICES_CREST_ADAPTERS_CREST_METRICS_H_
#define FORETOKEN_SERVICES_CREST_ADAPTERS_CREST_METRICS_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/drafting/crest/crest_record.h"
#include "common/metrics/registry.h"

namespace foretoken::crest {

class CrestMetrics {
 public:
  // `datastores`: the names of the configuration.
  CrestMetrics(metrics::Registry& registry,
               const std::vector<std::string>& datastores);

  // n of a look-up that was answered in memory, 0 for a miss.
  void LookedUpInMemory(int n, absl::Duration took);
  void LookedUpInPostgres(int n, bool cached, absl::Duration took);
  // A look-up, or the request for one, ended with an error.
  void LookupFailed() { errors_.Increment(); }

  void SetStreams(int streams) { streams_.Set(streams); }
  void SetReady(const std::string& datastore, bool ready);
  void Switched(const std::string& datastore, int64_t version);
  void LoadFailed(const std::string& datastore);
  void IngestEnded(absl::StatusCode code);

 private:
  struct PerDatastore {
    prometheus::Gauge* version;
    prometheus::Gauge* ready;
    prometheus::Counter* switches;
    prometheus::Counter* failed_loads;
  };

  void Found(int n) { found_[n]->Increment(); }

  std::array<prometheus::Counter*, kMaxCrestN + 1> found_;  // [n], 0: miss
  prometheus::Counter& errors_;
  prometheus::Histogram& memory_seconds_;
  prometheus::Histogram& postgres_seconds_;
  prometheus::Counter& cache_hits_;
  prometheus::Counter& cache_misses_;
  prometheus::Gauge& streams_;
  std::map<std::string, PerDatastore> datastores_;
  std::map<absl::StatusCode, prometheus::Counter*> ingests_;
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_ADAPTERS_CREST_METRICS_H_
