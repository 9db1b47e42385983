#include "tools/cli/mode_bench/pair_schedule.h"

#include <algorithm>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::mode_bench {
namespace {

using ::testing::UnorderedElementsAre;

TEST(PairScheduleTest, EverySecondPairRunsBackwards) {
  const PairSchedule schedule({}, 3);
  std::set<std::vector<size_t>> seen;
  for (int pair = 0; pair < 40; pair += 2) {
    std::vector<size_t> order = schedule.Order(pair, 0);
    EXPECT_THAT(order, UnorderedElementsAre(0, 1, 2));
    seen.insert(order);
    std::reverse(order.begin(), order.end());
    EXPECT_EQ(schedule.Order(pair + 1, 0), order);
  }
  EXPECT_EQ(seen.size(), 6u);  // all orders
}

TEST(PairScheduleTest, OrdersFollowFromSeedAndStream) {
  PairOptions other;
  other.seed = 2;
  const PairSchedule a({}, 8), same({}, 8), b(other, 8);
  EXPECT_EQ(a.Order(4, 1), same.Order(4, 1));
  EXPECT_NE(a.Order(4, 1), a.Order(4, 2));
  EXPECT_NE(a.Order(4, 1), b.Order(4, 1));
}

TEST(PairScheduleTest, AFixedNumberOfPairsIgnoresTheIntervals) {
  PairOptions options;
  options.pairs = 3;
  const PairSchedule schedule(options, 2);
  const std::vector<Interval> narrow = {{1, 1, 1}};
  const std::vector<Interval> wide = {{1, 0.1, 10}};
  EXPECT_TRUE(schedule.NeedsMore(2, narrow));
  EXPECT_FALSE(schedule.NeedsMore(3, wide));
}

TEST(PairScheduleTest, PairsAreAddedUntilEveryIntervalIsNarrow) {
  PairOptions options;
  options.pairs = 2;
  options.max_pairs = 5;
  options.until = 0.02;
  const PairSchedule schedule(options, 3);
  const Interval narrow = {2, 1.97, 2.03};
  const Interval wide = {1, 0.99, 1.03};
  const Interval unknown = MeanInterval({});
  EXPECT_TRUE(schedule.NeedsMore(1, std::vector<Interval>{narrow, narrow}));
  EXPECT_FALSE(schedule.NeedsMore(2, std::vector<Interval>{narrow, narrow}));
  EXPECT_TRUE(schedule.NeedsMore(2, std::vector<Interval>{narrow, wide}));
  EXPECT_TRUE(schedule.NeedsMore(2, std::vector<Interval>{unknown, narrow}));
  EXPECT_TRUE(schedule.NeedsMore(4, std::vector<Interval>{wide, wide}));
  EXPECT_FALSE(schedule.NeedsMore(5, std::vector<Interval>{wide, wide}));
}

}  // namespace
}  // namespace foretoken::mode_bench
