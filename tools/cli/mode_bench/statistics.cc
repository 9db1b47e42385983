#include "tools/cli/mode_bench/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace foretoken::mode_bench {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

struct Moments {
  double mean = kUnknown;
  double variance_of_mean = kUnknown;  // needs two values
};

Moments MomentsOf(absl::Span<const double> values) {
  Moments moments;
  if (values.empty()) return moments;
  const double count = static_cast<double>(values.size());
  double sum = 0;
  for (const double value : values) sum += value;
  moments.mean = sum / count;
  if (values.size() < 2) return moments;
  double squares = 0;
  for (const double value : values) {
    squares += (value - moments.mean) * (value - moments.mean);
  }
  // Bessel's correction (count - 1) for the variance, then divided by count for
  // that of the mean.
  moments.variance_of_mean = squares / (count - 1) / count;
  return moments;
}

Interval WithError(double mean, double error) {
  return {mean, mean - error, mean + error};
}

Interval Exponential(const Interval& interval) {
  return {std::exp(interval.mean), std::exp(interval.low),
          std::exp(interval.high)};
}

}  // namespace

Percentiles PercentilesOf(std::vector<double> values) {
  if (values.empty()) return {kUnknown, kUnknown, kUnknown};
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    // Nearest rank: the smallest value that at least this share of the values
    // does not exceed. At least the first, also for a share of 0.
    const double rank = std::ceil(share * static_cast<double>(values.size()));
    return values[static_cast<size_t>(std::max(rank, 1.0)) - 1];
  };
  return {at(0.50), at(0.95), at(0.99)};
}

double Interval::relative_width() const {
  const double width = std::max(high - mean, mean - low) / mean;
  // Unknown is as wide as can be, so that a schedule goes on measuring.
  return std::isfinite(width) ? width : std::numeric_limits<double>::infinity();
}

double StudentT(int degrees) {
  // 0.975 quantiles for 1 to 30 degrees of freedom: two-sided 95 %.
  static constexpr std::array<double, 30> kTable = {
      12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060,
      2.2622,  2.2281, 2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199,
      2.1098,  2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639,
      2.0595,  2.0555, 2.0518, 2.0484, 2.0452, 2.0423};
  if (degrees <= static_cast<int>(kTable.size())) {
    return kTable[std::max(degrees, 1) - 1];
  }
  // The expansion by Cornish and Fisher, exact to four digits from here on.
  constexpr double z = 1.959964;
  const double n = degrees;
  return z + (z * z * z + z) / (4 * n) +
         (5 * std::pow(z, 5) + 16 * z * z * z + 3 * z) / (96 * n * n);
}

Interval MeanInterval(absl::Span<const double> values) {
  // NaN with fewer than two values, by the variance: the mean is then shown
  // without limits.
  const Moments moments = MomentsOf(values);
  return WithError(moments.mean, StudentT(static_cast<int>(values.size()) - 1) *
                                     std::sqrt(moments.variance_of_mean));
}

Interval GeometricInterval(absl::Span<const double> logarithms) {
  return Exponential(MeanInterval(logarithms));
}

Interval PooledRatio(absl::Span<const std::vector<double>> log_ratios) {
  double sum = 0, variance = 0, spread = 0, cells = 0;
  for (const std::vector<double>& cell : log_ratios) {
    if (cell.empty()) continue;
    const Moments moments = MomentsOf(cell);
    ++cells;
    sum += moments.mean;
    variance += moments.variance_of_mean;
    // The degrees of freedom of a sum of variances that were estimated from
    // samples of different sizes: Welch and Satterthwaite.
    spread += moments.variance_of_mean * moments.variance_of_mean /
              static_cast<double>(cell.size() - 1);
  }
  if (cells == 0) return {kUnknown, kUnknown, kUnknown};
  // Without any variance the degrees do not matter.
  const double degrees = spread > 0 ? variance * variance / spread : 1;
  const double t = StudentT(static_cast<int>(std::min(degrees, 1e6)));
  return Exponential(WithError(sum / cells, t * std::sqrt(variance) / cells));
}

std::optional<BestComparison> CompareWithBest(
    absl::Span<const double> own,
    absl::Span<const std::vector<double>> others) {
  if (own.size() < 2 || others.empty()) return std::nullopt;
  const auto chosen_by = [&](const std::vector<double>& rates) {
    double sum = 0;
    // The best mode is chosen by even pairs and compared on odd ones. The same
    // pairs for both would make the best look better than it is, since the
    // luckiest of several is chosen.
    for (size_t pair = 0; pair < own.size(); pair += 2) sum += rates[pair];
    return sum;
  };
  BestComparison result;
  for (size_t i = 1; i < others.size(); ++i) {
    if (chosen_by(others[i]) > chosen_by(others[result.best])) result.best = i;
  }
  std::vector<double> log_ratios;
  for (size_t pair = 1; pair < own.size(); pair += 2) {
    log_ratios.push_back(own[pair] - others[result.best][pair]);
  }
  result.ratio = GeometricInterval(log_ratios);
  return result;
}

}  // namespace foretoken::mode_bench
