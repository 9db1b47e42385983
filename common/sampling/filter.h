// Filters of a row: the token ids that survive top-k, top-p and min-p.
//
// The order is always (logit descending, id ascending), so every filter has
// exactly one answer, ties included. Probabilities are summed as integers in
// units of 2^-40 (FixedWeight), whose sums do not depend on the order;
// therefore no filter needs more than a partial selection of the vocabulary.
//
// Thread-safe: all state is in the arguments.
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

// Sort order: the better candidate comes first.
inline bool ComesBefore(const Candidate& a, const Candidate& b) {
  if (a.logit != b.logit) return a.logit > b.logit;
  return a.id < b.id;
}

// Arg max; ties go to the lowest id. NaN counts as -infinity; a row without any
// other value gives id 0. One vectorised pass. `logits`: [at least 1].
TokenId ArgMax(absl::Span<const float> logits);

// Replaces `kept` with the best min(k, logits.size()) candidates, in
// unspecified order. `logits` must not contain NaN.
void SelectTopK(absl::Span<const float> logits, int32_t k,
                std::vector<Candidate>& kept);

// As above, sorted.
void SelectTopKSorted(absl::Span<const float> logits, int32_t k,
                      std::vector<Candidate>& kept);

// As above, for a small k: one vectorised pass and a look at about 32 k logits.
// NaN and -infinity are never selected.
void SelectFewSorted(absl::Span<const float> logits, int32_t k,
                     std::vector<Candidate>& kept);

// (logit - max_logit) / temperature: the exponent of an unnormalised
// probability. 0 for the best candidate, even if both are infinite.
inline float ScaledLogit(float logit, float max_logit, float temperature) {
  return logit == max_logit ? 0.0f : (logit - max_logit) / temperature;
}

// Replaces `kept` with the candidates that survive top-k, top-p and min-p of
// `params`, in unspecified order; never empty. `max_logit` is the maximum of
// `logits`; temperature > 0. Call only if at least one filter is on.
void Filter(absl::Span<const float> logits, float max_logit,
            const SamplingParams& params, std::vector<Candidate>& kept);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_SAMPLING_FILTER_H_
