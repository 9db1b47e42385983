#include "common/drafting/crest_build/count_histogram.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

CountHistogram Sample() {
  CountHistogram histogram;  // 5000, 2000, 7, 7, 7, 2, 1, 1
  for (const uint64_t count : {7, 1, 5000, 7, 2, 1, 7, 2000}) {
    histogram.Add(count);
  }
  return histogram;
}

TEST(CountHistogramTest, SumsSmallAndLargeCounts) {
  CountHistogram histogram = Sample();
  EXPECT_EQ(histogram.distinct(), 8u);
  EXPECT_EQ(histogram.occurrences(), 7025u);
  histogram.Merge(Sample());
  EXPECT_EQ(histogram.distinct(), 16u);
  EXPECT_EQ(histogram.With(7), 6u);
  EXPECT_EQ(histogram.With(5000), 2u);
  EXPECT_EQ(histogram.With(4999), 0u);
}

TEST(CountHistogramTest, FindsTheThresholdOfTheTopAndItsTies) {
  const auto four = Sample().Top(4, 2);
  EXPECT_EQ(four.count, 7u);
  EXPECT_EQ(four.ties, 2u);
  EXPECT_EQ(four.kept, 4u);
  const auto two = Sample().Top(2, 2);
  EXPECT_EQ(two.count, 2000u);
  EXPECT_EQ(two.ties, 1u);
}

TEST(CountHistogramTest, KeepsAllOfMinCountWhereTopIsMore) {
  const auto all = Sample().Top(1000, 2);
  EXPECT_EQ(all.count, 2u);
  EXPECT_EQ(all.ties, 1u);
  EXPECT_EQ(all.kept, 6u);
  const auto none = Sample().Top(1000, 6000);
  EXPECT_EQ(none.kept, 0u);
  EXPECT_EQ(none.ties, 0u);
}

TEST(CountHistogramTest, CoverageGrowsToTheWhole) {
  const auto points = Sample().Coverage();
  ASSERT_EQ(points.size(), 4u);  // 1, 2, 5, 8
  EXPECT_EQ(points[0].rank, 1u);
  EXPECT_DOUBLE_EQ(points[0].share, 5000 / 7025.0);
  EXPECT_EQ(points[2].rank, 5u);
  EXPECT_DOUBLE_EQ(points[2].share, 7021 / 7025.0);
  EXPECT_EQ(points[3].rank, 8u);
  EXPECT_DOUBLE_EQ(points[3].share, 1.0);
}

}  // namespace
}  // namespace foretoken
