#include "tests/support/cuda_twin/twin_sampler.h"

#include <algorithm>
#include <vector>

#include "common/infer/cuda/kernels/sample_order.h"
#include "common/sampling/sampler.h"

namespace foretoken::twin {
namespace {

// Penalties, bias and bans.
void Adjust(const device::PassHeader& pass, const DeviceSampling& sampling,
            const DeviceOutput& output, std::vector<float>& logits) {
  for (float& logit : logits) logit = device::CleanLogit(logit);
  const DeviceCount* path = pass.count() + output.count_begin;
  const auto penalise = [&](const DeviceCount& seen) {
    float& logit = logits[seen.token];
    logit = device::Penalised(logit, seen.count, sampling);
  };
  for (int32_t i = 0; i < sampling.counts; ++i) {
    const DeviceCount& seen = pass.count()[sampling.count_begin + i];
    const bool on_path = std::any_of(
        path, path + output.counts,
        [&](const DeviceCount& count) { return count.token == seen.token; });
    if (!on_path) penalise(seen);
  }
  for (int32_t i = 0; i < output.counts; ++i) penalise(path[i]);
  for (int32_t i = 0; i < sampling.biases; ++i) {
    const DeviceBias& bias = pass.bias()[sampling.bias_begin + i];
    logits[bias.token] += bias.bias;
  }
  for (int32_t i = 0; i < output.bans; ++i) {
    logits[pass.bias()[output.ban_begin + i].token] = device::MinusInfinity();
  }
}

}  // namespace

DeviceToken Sample(const device::PassHeader& pass, int32_t index,
                   absl::Span<const float> raw) {
  const DeviceOutput& output = pass.output()[index];
  DeviceToken token;
  token.bad = std::all_of(raw.begin(), raw.end(),
                          [](float logit) { return logit != logit; });
  const int32_t s = pass.session()[pass.row()[output.row].session].sampling;
  SamplingParams params;
  std::vector<Candidate> candidates;
  std::vector<float> logits(raw.begin(), raw.end());
  if (s >= 0) {
    const DeviceSampling& sampling = pass.sampling()[s];
    Adjust(pass, sampling, output, logits);
    params.temperature = sampling.temperature;
    params.top_k = sampling.top_k;
    params.top_p = sampling.top_p;
    params.min_p = sampling.min_p;
    params.seed = sampling.seed;
  }
  token.token = DrawToken(logits, params, output.position, candidates);
  if (output.logprobs == 0) return token;
  SampledToken report;
  report.token = token.token;
  ReportLogprobs(raw, kDeviceTopTokens, logits, candidates, report);
  token.logprob = report.logprob;
  for (size_t i = 0; i < report.top_logprobs.size(); ++i) {
    token.top_tokens[i] = report.top_logprobs[i].token;
    token.top_logprobs[i] = report.top_logprobs[i].logprob;
  }
  return token;
}

}  // namespace foretoken::twin
