#include "tools/cli/mode_bench/statistics.h"

#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::mode_bench {
namespace {

TEST(StatisticsTest, PercentilesAreValuesByNearestRank) {
  std::vector<double> values;
  for (int i = 200; i > 0; --i) values.push_back(i);
  const Percentiles percentiles = PercentilesOf(values);
  EXPECT_EQ(percentiles.p50, 100);
  EXPECT_EQ(percentiles.p95, 190);
  EXPECT_EQ(percentiles.p99, 198);
  EXPECT_EQ(PercentilesOf({7}).p99, 7);
  EXPECT_EQ(PercentilesOf({1, 2}).p50, 1);
  EXPECT_TRUE(std::isnan(PercentilesOf({}).p50));
}

TEST(StatisticsTest, StudentsQuantiles) {
  EXPECT_NEAR(StudentT(1), 12.7062, 1e-4);
  EXPECT_NEAR(StudentT(9), 2.2622, 1e-4);
  EXPECT_NEAR(StudentT(30), 2.0423, 1e-4);
  EXPECT_NEAR(StudentT(31), 2.0395, 1e-4);  // from the expansion
  EXPECT_NEAR(StudentT(40), 2.0211, 1e-4);
  EXPECT_NEAR(StudentT(120), 1.9799, 1e-4);
  EXPECT_NEAR(StudentT(1'000'000), 1.9600, 1e-4);
}

TEST(StatisticsTest, TheIntervalOfAMean) {
  // Standard deviation 2, standard error 1 with four values.
  const double far = std::sqrt(3.0);
  const std::vector<double> values = {10 - far, 10 - far, 10 + far, 10 + far};
  const Interval interval = MeanInterval(values);
  EXPECT_NEAR(interval.mean, 10, 1e-9);
  EXPECT_NEAR(interval.low, 10 - 3.1824, 1e-3);
  EXPECT_NEAR(interval.high, 10 + 3.1824, 1e-3);
  EXPECT_NEAR(interval.relative_width(), 0.31824, 1e-4);
}

TEST(StatisticsTest, OneValueHasNoLimits) {
  const std::vector<double> one = {3};
  const Interval interval = MeanInterval(one);
  EXPECT_EQ(interval.mean, 3);
  EXPECT_TRUE(std::isnan(interval.low));
  EXPECT_TRUE(std::isnan(interval.high));
  EXPECT_TRUE(std::isinf(interval.relative_width()));
  EXPECT_TRUE(std::isnan(MeanInterval({}).mean));
}

TEST(StatisticsTest, SwappingTheSidesInvertsARatio) {
  const std::vector<double> logs = {std::log(1.1), std::log(0.9),
                                    std::log(1.3)};
  std::vector<double> swapped;
  for (const double value : logs) swapped.push_back(-value);
  const Interval ratio = GeometricInterval(logs);
  const Interval inverse = GeometricInterval(swapped);
  EXPECT_NEAR(ratio.mean, std::cbrt(1.1 * 0.9 * 1.3), 1e-9);
  EXPECT_NEAR(inverse.mean, 1 / ratio.mean, 1e-9);
  EXPECT_NEAR(inverse.low, 1 / ratio.high, 1e-9);
  EXPECT_NEAR(inverse.high, 1 / ratio.low, 1e-9);
}

TEST(StatisticsTest, PooledCellsCountEqually) {
  // Cells of different means and many pairs: what differs between cells does
  // not widen the interval.
  const std::vector<std::vector<double>> cells = {
      {std::log(2.0) - 0.01, std::log(2.0) + 0.01},
      {-0.01, 0.01, -0.01, 0.01, -0.01, 0.01}};
  const Interval pooled = PooledRatio(cells);
  EXPECT_NEAR(pooled.mean, std::sqrt(2.0), 1e-9);
  EXPECT_LT(pooled.relative_width(), 0.1);
  EXPECT_GT(pooled.relative_width(), 0.0);

  // One cell alone is the plain interval.
  const Interval one = PooledRatio(absl::MakeConstSpan(cells).subspan(1));
  const Interval plain = GeometricInterval(cells[1]);
  EXPECT_NEAR(one.low, plain.low, 1e-9);
  EXPECT_NEAR(one.high, plain.high, 1e-9);

  // Equal pairs have no width; a cell of one pair has an unknown one.
  const std::vector<std::vector<double>> equal = {{0.5, 0.5}, {}};
  EXPECT_NEAR(PooledRatio(equal).low, std::exp(0.5), 1e-9);
  const std::vector<std::vector<double>> single = {{0.5, 0.5}, {0.1}};
  EXPECT_TRUE(std::isnan(PooledRatio(single).low));
  EXPECT_TRUE(std::isnan(PooledRatio({}).mean));
}

TEST(StatisticsTest, TheBestIsChosenAndComparedOnDifferentPairs) {
  const std::vector<double> own = {1, 1, 1, 1};
  // The first wins the even pairs by luck and loses the odd ones.
  const std::vector<std::vector<double>> others = {{9, 0, 9, 0}, {2, 2, 2, 2}};
  const auto compared = CompareWithBest(own, others);
  ASSERT_TRUE(compared.has_value());
  EXPECT_EQ(compared->best, 0u);
  EXPECT_NEAR(compared->ratio.mean, std::exp(1.0), 1e-9);

  EXPECT_FALSE(CompareWithBest(own, {}).has_value());
  const std::vector<double> short_own = {1};
  const std::vector<std::vector<double>> short_others = {{1}};
  EXPECT_FALSE(CompareWithBest(short_own, short_others).has_value());
}

}  // namespace
}  // namespace foretoken::mode_bench
