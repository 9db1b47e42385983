// The metrics of a registry once more, under the names of vLLM (its production
// metrics, V1), so that dashboards and autoscalers made for it work unchanged.
//
// Every sample has vLLM's labels: `model_name`, and `engine`, always "0".
// Labels that vLLM does not have are summed over; `position` it has. Units are
// the same. What differs: time_per_output_token_seconds and
// inter_token_latency_seconds have one observation per round, the mean of its
// tokens, and iteration_tokens_total counts rows, rejected drafts included.
#ifndef FORETOKEN_COMMON_METRICS_VLLM_NAMES_H_
#define FORETOKEN_COMMON_METRICS_VLLM_NAMES_H_

#include <string>
#include <vector>

#include "prometheus/metric_family.h"

namespace foretoken::metrics {

// Families under vLLM's names for those in `ours` that have one there.
std::vector<prometheus::MetricFamily> VllmFamilies(
    const std::vector<prometheus::MetricFamily>& ours,
    const std::string& model_name);

}  // namespace foretoken::metrics

#endif  // FORETOKEN_COMMON_METRICS_VLLM_NAMES_H_
