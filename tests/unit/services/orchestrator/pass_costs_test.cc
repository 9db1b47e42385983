#include "services/orchestrator/core/pass_costs.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace foretoken::orchestrator {
namespace {

TEST(PassCostsTest, CostsAreInterpolatedAndContinued) {
  const PassCosts costs({{64, 40.0}, {1, 10.0}, {16, 10.0}, {32, 20.0}});
  EXPECT_EQ(costs.At(1), 10.0);
  EXPECT_EQ(costs.At(0), 10.0);
  EXPECT_EQ(costs.At(8), 10.0);
  EXPECT_EQ(costs.At(24), 15.0);
  EXPECT_EQ(costs.At(96), 60.0);
}

TEST(PassCostsTest, NonsenseIsLeftOutAndNoiseLevelled) {
  const PassCosts costs(
      {{0, 5.0}, {4, NAN}, {8, -1.0}, {2, 9.0}, {16, 7.0}, {32, 8.0}});
  EXPECT_EQ(costs.At(2), 8.0);
  EXPECT_EQ(costs.At(48), 8.0);
  EXPECT_TRUE(costs.known());
  EXPECT_FALSE(PassCosts({{2, 9.0}}).known());
  EXPECT_EQ(PassCosts({{2, 9.0}}).At(64), 9.0);
  EXPECT_EQ(PassCosts().At(1), 0.0);
}

// 1 + 0.1 a row in peace; the classes of 8 to 64 rows were measured again in a
// busy hour, at four times that.
TEST(PassCostsTest, BusyPointsInTheMiddleMakeNoRowLookFree) {
  const PassCosts costs({{1, 1.1},
                         {4, 1.4},
                         {8, 7.2},
                         {16, 10.4},
                         {64, 29.6},
                         {256, 26.6},
                         {512, 52.2}});
  double before = costs.At(1);
  for (const int rows : {4, 8, 16, 64, 256, 512, 600}) {
    EXPECT_GT(costs.At(rows), before) << rows;
    EXPECT_LE(costs.At(rows), 1.0 + 0.11 * rows) << rows;
    before = costs.At(rows);
  }
}

TEST(PassCostsTest, BusyPointsAtTheStartLeaveASlope) {
  const PassCosts costs(
      {{1, 12.0}, {8, 14.0}, {16, 15.0}, {64, 10.0}, {256, 30.0}});
  EXPECT_TRUE(costs.known());
  EXPECT_GT(costs.At(16), costs.At(1));
  EXPECT_GT(costs.At(256), costs.At(64));
}

TEST(PassCostsTest, RowsThatCostNothingAreKnownToCostNothing) {
  const PassCosts costs({{1, 10.0}, {64, 9.8}, {256, 9.9}});
  EXPECT_TRUE(costs.known());
  EXPECT_NEAR(costs.At(256), costs.At(1), 0.1);
}

TEST(WorthwhileNodesTest, UnknownCostsTakeAll) {
  EXPECT_EQ(WorthwhileNodes({0.1f, 0.0f}, PassCosts(), {}), 2);
}

TEST(WorthwhileNodesTest, FreeRowsAreTakenAndDearOnesAreNot) {
  const std::vector<float> probs = {0.8f, 0.6f, 0.3f, 0.1f, 0.05f};
  EXPECT_EQ(WorthwhileNodes(probs, PassCosts({{1, 10.0}, {64, 10.0}}), {}), 5);
  // A row costs as much as the pass: no node gives a token for sure.
  EXPECT_EQ(WorthwhileNodes(probs, PassCosts({{1, 1.0}, {2, 2.0}}), {}), 0);
  // 10 + 1 a row: the best of (1 + sum) / cost, by hand 1.8/12, 2.4/13, 2.7/14,
  // 2.8/15.
  const PassCosts between({{1, 11.0}, {2, 12.0}});
  EXPECT_EQ(WorthwhileNodes(probs, between, {}), 3);
}

TEST(WorthwhileNodesTest, OverheadOfARoundMakesNodesCheaper) {
  const PassCosts costs({{1, 1.0}, {2, 2.0}});
  EXPECT_EQ(WorthwhileNodes({0.5f}, costs, {}), 0);
  EXPECT_EQ(WorthwhileNodes({0.5f}, costs, {.overhead_ms = 5.0}), 1);
}

TEST(WorthwhileNodesTest, ASharedPassOfManyRowsMakesNodesDearer) {
  const std::vector<float> probs = {0.5f};
  const PassCosts costs({{1, 10.0}, {16, 10.0}, {64, 58.0}});
  EXPECT_EQ(WorthwhileNodes(probs, costs, {}), 1);
  // 31 other rows that commit 31 tokens: a token for 26 / 32 ms, a row costs 1.
  EXPECT_EQ(
      WorthwhileNodes(probs, costs, {.other_rows = 31, .other_tokens = 31}), 0);
}

// Every row of a pass that must be waited for has a price; network time has
// none.
TEST(WorthwhileNodesTest, WaitingForOthersPassesIsNoOverhead) {
  const PassCosts costs({{1, 10.0}, {2, 15.0}});
  PassLoad load = {.overhead_ms = 10.0};
  EXPECT_EQ(WorthwhileNodes({0.3f}, costs, load), 1);
  load.passes_waited = 1.0;
  EXPECT_EQ(WorthwhileNodes({0.3f}, costs, load), 0);
}

}  // namespace
}  // namespace foretoken::orchestrator
