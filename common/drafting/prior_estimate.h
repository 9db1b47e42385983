// Probabilities and worth of every n-gram of a corpus: the statistics behind a
// static prior, before anything is pruned.
//
// Absolute discounting with three discounts from the counts of counts (Chen and
// Goodman, "An empirical study of smoothing techniques for language modeling",
// section "Modified Kneser-Ney"), interpolated. Below the longest n-grams a
// continuation counts by the kinds of tokens seen before it, not by its
// occurrences: the shorter context speaks where the longer one is unknown.
#ifndef FORETOKEN_COMMON_DRAFTING_PRIOR_ESTIMATE_H_
#define FORETOKEN_COMMON_DRAFTING_PRIOR_ESTIMATE_H_

#include <vector>

#include "common/drafting/ngram_counts.h"

namespace foretoken {

// Of the n-grams of one level, in its order.
struct NgramEstimates {
  std::vector<float> share;        // discounted, in its context: q(w | h)
  std::vector<float> probability;  // with what backs off: P(w | h)
  std::vector<float> backoff;      // b of the n-gram as a context; empty at the
                                   // last level
  // Natural units of likelihood that the corpus loses without the n-gram or
  // the best of those that it begins: never less than a continuation's.
  std::vector<float> worth;
};

// [n - 1] for level n. `counts` has at least one token.
std::vector<NgramEstimates> EstimateNgrams(const NgramCounts& counts);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_PRIOR_ESTIMATE_H_
