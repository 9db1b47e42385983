// Statistics of `bench modes`: percentiles, and 95 % intervals of means over
// pairs of slices. Functions without state.
#ifndef FORETOKEN_TOOLS_CLI_MODE_BENCH_STATISTICS_H_
#define FORETOKEN_TOOLS_CLI_MODE_BENCH_STATISTICS_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace foretoken::mode_bench {

// Percentiles by nearest rank: each is one of the values. NaN if there are
// none.
struct Percentiles {
  double p50 = 0;
  double p95 = 0;
  double p99 = 0;
};
Percentiles PercentilesOf(std::vector<double> values);

// A mean with its 95 % interval by Student's t. The limits are NaN for fewer
// than two values, the mean for none.
struct Interval {
  double mean = 0;
  double low = 0;
  double high = 0;

  // The larger distance of a limit from the mean, as a share of the mean;
  // infinite for unknown limits.
  double relative_width() const;
};
Interval MeanInterval(absl::Span<const double> values);

// A geometric mean, from the logarithms of the values; of each pair's ratio, it
// is the ratio of the two sides' geometric means. The interval is symmetrical
// in the logarithm: its limits are positive, and swapping the two sides of
// ratios inverts it exactly.
Interval GeometricInterval(absl::Span<const double> logarithms);

// The ratio over several cells, each with equal weight however many pairs it
// has; degrees of freedom by Welch and Satterthwaite, rounded down. Empty cells
// are ignored.
Interval PooledRatio(absl::Span<const std::vector<double>> log_ratios);

// The 97.5 % quantile of Student's t; `degrees` at least 1.
double StudentT(int degrees);

// `own` against the best of `others`, all logarithms of a rate by pair, equally
// long. Even pairs choose the best, odd pairs compare with it, so that the
// choice does not profit from the noise that it was made by.
struct BestComparison {
  size_t best = 0;  // index in `others`
  Interval ratio;   // of `own` to it
};
// Nothing with fewer than two pairs, or without others.
std::optional<BestComparison> CompareWithBest(
    absl::Span<const double> own, absl::Span<const std::vector<double>> others);

}  // namespace foretoken::mode_bench

#endif  // FORETOKEN_TOOLS_CLI_MODE_BENCH_STATISTICS_H_
