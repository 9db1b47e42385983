#include "common/metrics/vllm_names.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/string_view.h"
#include "common/metrics/catalog.h"

namespace foretoken::metrics {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

struct Renamed {
  const Spec& ours;
  const char* name;
  const char* kept_label = nullptr;
};

// Our names and vLLM's. Families with several children become one series,
// summed, except by `kept_label`. Histograms in this list have no labels, so
// they are copied, never summed.
constexpr Renamed kRenamed[] = {
    {kRequestsWaiting, "vllm:num_requests_waiting"},
    {kPromptTokens, "vllm:prompt_tokens_total"},
    {kGenerationTokens, "vllm:generation_tokens_total"},
    {kTimeToFirstToken, "vllm:time_to_first_token_seconds"},
    {kInterTokenLatency, "vllm:time_per_output_token_seconds"},
    {kInterTokenLatency, "vllm:inter_token_latency_seconds"},
    {kRequestLatency, "vllm:e2e_request_latency_seconds"},
    {kNumDrafts, "vllm:spec_decode_num_drafts_total"},
    {kNumDraftTokens, "vllm:spec_decode_num_draft_tokens_total"},
    {kNumAcceptedTokens, "vllm:spec_decode_num_accepted_tokens_total"},
    {kNumAcceptedPerPosition,
     "vllm:spec_decode_num_accepted_tokens_per_pos_total", "position"},
    {kPreemptions, "vllm:num_preemptions_total"},
    {kPassRows, "vllm:iteration_tokens_total"},
};

const MetricFamily* Find(const std::vector<MetricFamily>& families,
                         const Spec& spec) {
  for (const MetricFamily& family : families) {
    if (family.name == spec.name) return &family;
  }
  return nullptr;
}

std::vector<ClientMetric::Label> Labels(const std::string& model_name) {
  // The labels that vLLM gives every metric: dashboards select by them.
  return {{"engine", "0"}, {"model_name", model_name}};
}

std::string ValueOf(const ClientMetric& metric, absl::string_view label) {
  for (const ClientMetric::Label& own : metric.label) {
    if (own.name == label) return own.value;
  }
  return "";
}

MetricFamily Rename(const MetricFamily& family, const Renamed& renamed,
                    const std::string& model_name) {
  MetricFamily result;
  result.name = renamed.name;
  result.help = family.help;
  result.type = family.type;
  std::map<std::string, size_t> places;  // by the kept label's value
  for (const ClientMetric& metric : family.metric) {
    const std::string kept = renamed.kept_label == nullptr
                                 ? ""
                                 : ValueOf(metric, renamed.kept_label);
    // vLLM has one series where ours has one per label value: sum, as a query
    // over ours would.
    const auto [place, inserted] = places.emplace(kept, result.metric.size());
    if (!inserted) {
      ClientMetric& sum = result.metric[place->second];
      sum.counter.value += metric.counter.value;
      sum.gauge.value += metric.gauge.value;
      continue;
    }
    ClientMetric& first = result.metric.emplace_back(metric);
    first.label = Labels(model_name);
    if (renamed.kept_label != nullptr) {
      first.label.push_back({renamed.kept_label, kept});
    }
  }
  return result;
}

MetricFamily GaugeFamily(const char* name, const char* help, double value,
                         const std::string& model_name) {
  ClientMetric metric;
  metric.label = Labels(model_name);
  metric.gauge.value = value;
  return {name, help, MetricType::Gauge, {std::move(metric)}};
}

}  // namespace

std::vector<MetricFamily> VllmFamilies(const std::vector<MetricFamily>& ours,
                                       const std::string& model_name) {
  std::vector<MetricFamily> families;
  for (const Renamed& renamed : kRenamed) {
    // A process that lacks the metric, such as a drafter, shows nothing rather
    // than 0.
    const MetricFamily* const family = Find(ours, renamed.ours);
    if (family == nullptr || family->metric.empty()) continue;
    families.push_back(Rename(*family, renamed, model_name));
  }
  // Metrics that follow from several of ours.
  const MetricFamily* const open = Find(ours, kRequestsRunning);
  const MetricFamily* const waiting = Find(ours, kRequestsWaiting);
  if (open != nullptr && waiting != nullptr) {
    families.push_back(
        GaugeFamily("vllm:num_requests_running", "Requests that run",
                    // The two gauges are not read at the same instant, so the
                    // difference may be negative for a moment.
                    std::max(0.0, open->metric.at(0).gauge.value -
                                      waiting->metric.at(0).gauge.value),
                    model_name));
  }
  const MetricFamily* const pages = Find(ours, kKvPagesTotal);
  const MetricFamily* const free = Find(ours, kKvPagesFree);
  if (pages != nullptr && free != nullptr) {
    const double total = pages->metric.at(0).gauge.value;
    const double used =
        total == 0 ? 0 : 1 - free->metric.at(0).gauge.value / total;
    // gpu_cache_usage_perc is vLLM's name before V1.
    for (const char* name :
         {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"}) {
      families.push_back(GaugeFamily(name, "Used part of the KV cache, 0..1",
                                     used, model_name));
    }
  }
  return families;
}

}  // namespace foretoken::metrics
