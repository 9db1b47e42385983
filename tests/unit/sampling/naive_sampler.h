// The definition of sampling in its slowest and plainest form: whole sorts,
// noise for every id, counts by scanning the text. The real sampler must give
// the same token.
#ifndef FORETOKEN_TESTS_UNIT_SAMPLING_NAIVE_SAMPLER_H_
#define FORETOKEN_TESTS_UNIT_SAMPLING_NAIVE_SAMPLER_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/sampling/fixed_math.h"
#include "common/sampling/position_noise.h"
#include "common/sampling/sampling_params.h"

namespace foretoken::testing {

inline std::vector<float> NaiveAdjusted(const SamplingParams& params,
                                        const std::vector<TokenId>& text,
                                        size_t prompt_length,
                                        std::vector<float> logits) {
  const float minus_infinity = -std::numeric_limits<float>::infinity();
  for (TokenId id = 0; id < static_cast<TokenId>(logits.size()); ++id) {
    float& logit = logits[id];
    if (logit != logit) logit = minus_infinity;
    const bool seen = std::find(text.begin(), text.end(), id) != text.end();
    const auto output = text.begin() + std::min(prompt_length, text.size());
    const auto count = std::count(output, text.end(), id);
    if (seen && params.repetition_penalty != 1.0f) {
      logit = logit > 0 ? logit / params.repetition_penalty
                        : logit * params.repetition_penalty;
    }
    if (count > 0) {
      logit -= params.frequency_penalty * static_cast<float>(count);
      logit -= params.presence_penalty;
    }
    for (const auto& [token, bias] : params.logit_bias) {
      if (token == id) logit += bias;
    }
    const auto& ends = params.end_tokens;
    if (text.size() < prompt_length + params.min_tokens &&
        std::find(ends.begin(), ends.end(), id) != ends.end()) {
      logit = minus_infinity;
    }
  }
  return logits;
}

// Ids in the order of every sort.
inline std::vector<TokenId> NaiveOrder(const std::vector<float>& logits) {
  std::vector<TokenId> ids(logits.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(i);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  return ids;
}

inline TokenId NaiveSample(const SamplingParams& params,
                           const std::vector<TokenId>& text,
                           size_t prompt_length,
                           const std::vector<float>& raw) {
  const std::vector<float> logits =
      NaiveAdjusted(params, text, prompt_length, raw);
  std::vector<TokenId> ids = NaiveOrder(logits);
  const float top = logits[ids[0]];
  if (top == -std::numeric_limits<float>::infinity()) return 0;
  if (params.temperature == 0.0f) return ids[0];
  const auto scaled = [&](TokenId id) {
    return logits[id] == top ? 0.0f : (logits[id] - top) / params.temperature;
  };
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < ids.size()) {
    ids.resize(params.top_k);
  }
  if (params.top_p < 1.0f) {
    uint64_t total = 0;
    for (const TokenId id : ids) total += FixedWeight(scaled(id));
    const auto limit =
        static_cast<uint64_t>(double{params.top_p} * double(total));
    uint64_t before = 0;
    size_t kept = 0;
    while (kept < ids.size() && (kept == 0 || before < limit)) {
      before += FixedWeight(scaled(ids[kept++]));
    }
    ids.resize(kept);
  }
  TokenId best = ids[0];
  float best_score = -std::numeric_limits<float>::infinity();
  std::sort(ids.begin(), ids.end());
  for (const TokenId id : ids) {
    if (FixedExp(scaled(id)) < params.min_p) continue;
    const float score =
        scaled(id) +
        GumbelNoise(params.seed, static_cast<int64_t>(text.size()), id);
    if (score > best_score) {
      best_score = score;
      best = id;
    }
  }
  return best;
}

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_UNIT_SAMPLING_NAIVE_SAMPLER_H_
