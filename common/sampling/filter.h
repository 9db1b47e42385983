// The filters of a row: which token ids survive top-k, top-p and min-p.
//
// All order is by (logit descending, id ascending), so every filter has one
// answer, ties included. Probabilities are summed as whole numbers of 2^-40
// (FixedWeight), whose sums are the same in any order; no filter therefore
// needs more than a partial selection of the vocabulary.
//
// Thread-safe: state lives in the arguments.
#ifndef FORETOKEN_COMMON_SAMPLING_FILTER_H_
#define FORETOKEN_COMMON_SAMPLING_FILTER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/sampling/sampling_params.h"

namespace foretoken {

struct Candidate {
  float logit;
  TokenId id;
};

// The order of every sort: the better of two candidates comes first.
inline bool ComesBefore(const Candidate& a, const Candidate& b) {
  if (a.logit != b.logit) return a.logit > b.logit;
  return a.id < b.id;
}

// Arg max, ties to the lowest id. NaN counts as -infinity; a row of nothing
// else gives id 0. One vectorised pass. `logits`: [at least 1].
TokenId ArgMax(absl::Span<const float> logits);

// Replaces `kept` by the first min(k, logits.size()) candidates, in no defined
// order. NaN must be gone from `logits`.
void SelectTopK(absl::Span<const float> logits, int32_t k,
                std::vector<Candidate>& kept);

// The same with the result sorted.
void SelectTopKSorted(absl::Span<const float> logits, int32_t k,
                      std::vector<Candidate>& kept);

// (logit - max_logit) / temperature, the exponent of an unnormalised
// probability: 0 for the best candidate, also where both are infinite.
inline float ScaledLogit(float logit, float max_logit, float temperature) {
  return logit == max_logit ? 0.0f : (logit - max_logit) / temperature;
}

// Replaces `kept` by what survives params' top-k, top-p and min-p, in no
// defined order; never empty. `max_logit` is the highest of `logits`;
// temperature > 0. Call only with at least one filter on.
void Filter(absl::Span<const float> logits, float max_logit,
            const SamplingParams& params, std::vector<Candidate>& kept);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_SAMPLING_FILTER_H_
