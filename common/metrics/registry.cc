#include "common/metrics/registry.h"

#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/log_output.h"
#include "common/base/status_macros.h"
#include "common/metrics/vllm_names.h"
#include "prometheus/text_serializer.h"

namespace foretoken::metrics {
namespace {

prometheus::Labels LabelsOf(const Spec& spec, const std::string& value,
                            const std::string& second = "") {
  // A label without a value, or a value without a label, would make a second
  // time series.
  FORETOKEN_CHECK((spec.label == nullptr) == value.empty());
  FORETOKEN_CHECK((spec.second_label == nullptr) == second.empty());
  prometheus::Labels labels;
  if (spec.label != nullptr) labels.emplace(spec.label, value);
  if (spec.second_label != nullptr) labels.emplace(spec.second_label, second);
  return labels;
}

}  // namespace

Registry::Registry() : registry_(std::make_shared<prometheus::Registry>()) {
  // Created at once, so that they show 0 before the first event: rate() needs a
  // first sample.
  for (const Spec* const spec : kProcessMetrics) GetCounter(*spec);
  AddTotal(kDroppedLogLines, DroppedLogLines);
}

void Registry::AddTotal(const Spec& spec, std::function<int64_t()> total) {
  prometheus::Counter& counter = GetCounter(spec);
  absl::MutexLock lock(&mu_);
  totals_.push_back({counter, std::move(total)});
}

prometheus::Counter& Registry::GetCounter(const Spec& spec,
                                          const std::string& value,
                                          const std::string& second) {
  // Registering a family twice returns the first; so does adding equal labels.
  FORETOKEN_CHECK(spec.kind == Kind::kCounter);
  return prometheus::BuildCounter()
      .Name(spec.name)
      .Help(spec.help)
      .Register(*registry_)
      .Add(LabelsOf(spec, value, second));
}

prometheus::Gauge& Registry::GetGauge(const Spec& spec,
                                      const std::string& value) {
  FORETOKEN_CHECK(spec.kind == Kind::kGauge);
  return prometheus::BuildGauge()
      .Name(spec.name)
      .Help(spec.help)
      .Register(*registry_)
      .Add(LabelsOf(spec, value));
}

prometheus::Histogram& Registry::GetHistogram(const Spec& spec,
                                              const std::string& value) {
  FORETOKEN_CHECK(spec.kind == Kind::kHistogram);
  return prometheus::BuildHistogram()
      .Name(spec.name)
      .Help(spec.help)
      .Register(*registry_)
      .Add(LabelsOf(spec, value), prometheus::Histogram::BucketBoundaries(
                                      spec.bounds.begin(), spec.bounds.end()));
}

std::string Registry::Text(MetricNames names) const {
  {
    absl::MutexLock lock(&mu_);
    for (Total& each : totals_) {
      // prometheus-cpp's counters cannot be set: add the difference to what was
      // shown. The lock keeps two scrapes from adding it twice.
      const int64_t total = each.total();
      each.counter.Increment(static_cast<double>(total - each.shown));
      each.shown = total;
    }
  }
  std::vector<prometheus::MetricFamily> families = registry_->Collect();
  if (names == MetricNames::kVllm) {
    for (auto& family : VllmFamilies(families, model_name_)) {
      families.push_back(std::move(family));
    }
  }
  return prometheus::TextSerializer().Serialize(families);
}

CodeCounters::CodeCounters(Registry& registry, const Spec& spec, Codes codes) {
  // Index 0 is OK. Looked up once, so that Increment is lock-free.
  for (size_t code = codes == kWithOk ? 0 : 1; code < counters_.size();
       ++code) {
    counters_[code] = &registry.GetCounter(
        spec, absl::StatusCodeToString(static_cast<absl::StatusCode>(code)));
  }
}

// A code that is not counted (OK for kErrors) has a null counter; one from a
// newer peer may lie outside the table.
void CodeCounters::Increment(absl::StatusCode code) {
  const size_t index = static_cast<size_t>(code);
  if (index < counters_.size() && counters_[index] != nullptr) {
    counters_[index]->Increment();
  }
}

void ExposerOptions::AddFlags(Flags& flags) {
  flags.String("metrics-listen", &address,
               "HOST:PORT of the /metrics page, empty to disable it");
  flags.Choice("metrics-names", &names, {"foretoken", "vllm"},
               "Names on the /metrics page; vllm: also those of vLLM, for "
               "dashboards and autoscalers made for it");
  flags.List("metrics-allowed-hosts", &allowed_hosts,
             "Names under which clients on this machine, such as a proxy, may "
             "read /metrics, beyond localhost; * for all");
}

absl::StatusOr<std::optional<net::BoundSocket>> Exposer::Bind(
    const ExposerOptions& options) {
  if (options.address.empty()) return std::optional<net::BoundSocket>();
  return net::BoundSocket::Bind(options.address);
}

absl::StatusOr<std::unique_ptr<Exposer>> Exposer::Start(
    const ExposerOptions& options, const Registry& registry) {
  FORETOKEN_ASSIGN_OR_RETURN(std::optional<net::BoundSocket> bound,
                             Bind(options));
  return Start(options, std::move(bound), registry);
}

absl::StatusOr<std::unique_ptr<Exposer>> Exposer::Start(
    const ExposerOptions& options, std::optional<net::BoundSocket> bound,
    const Registry& registry) {
  std::unique_ptr<Exposer> exposer(new Exposer());
  if (!bound.has_value()) return exposer;
  net::PageServerOptions page;
  page.allowed_hosts = options.allowed_hosts;
  const MetricNames names =
      options.names == "vllm" ? MetricNames::kVllm : MetricNames::kForetoken;
  FORETOKEN_ASSIGN_OR_RETURN(
      exposer->server_,
      net::PageServer::Start(page, *std::move(bound), [&registry, names] {
        return registry.Text(names);
      }));
  return exposer;
}

}  // namespace foretoken::metrics
