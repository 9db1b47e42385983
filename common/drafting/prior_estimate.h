// Probabilities and worth of every n-gram of a corpus: the statistics of a
// static prior before pruning.
//
// Interpolated absolute discounting with three discounts from the counts of
// counts (Chen and Goodman, "An empirical study of smoothing techniques for
// language modeling", section "Modified Kneser-Ney"). Below the longest n-grams
// a continuation is counted by the distinct tokens seen before it, not by its
// occurrences: the shorter context only matters where the longer one is
// unknown.
#ifndef FORETOKEN_COMMON_DRAFTING_PRIOR_ESTIMATE_H_
#define FORETOKEN_COMMON_DRAFTING_PRIOR_ESTIMATE_H_

#include <vector>

#include "common/drafting/ngram_counts.h"

namespace foretoken {

// Estimates for the n-grams of one level, in its order.
struct NgramEstimates {
  std::vector<float> share;        // discounted, within its context: q(w | h)
  std::vector<float> probability;  // interpolated with backoff: P(w | h)
  std::vector<float> backoff;      // b(h) of the n-gram as a context; empty at
                                   // the last level
  // Log-likelihood (in nats) that the corpus loses without the n-gram, or the
  // maximum over the n-grams that it begins, so never below a continuation's.
  std::vector<float> worth;
};

// Returns one entry per level, [n - 1] for level n. `counts` has at least one
// token.
std::vector<NgramEstimates> EstimateNgrams(const NgramCounts& counts);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_PRIOR_ESTIMATE_H_
