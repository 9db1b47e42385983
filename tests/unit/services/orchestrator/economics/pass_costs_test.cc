#include "services/orchestrator/core/economics/pass_costs.h"

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
  // The lower convex hull has 0.1 a row; a quarter of it is always paid.
  int before = 1;
  for (const int rows : {4, 8, 16, 64, 256, 512, 600}) {
    EXPECT_GE(costs.At(rows) - costs.At(before), 0.02 * (rows - before))
        << rows;
    before = rows;
  }
}

// Tiles of 16 rows: the seventeenth row costs as much as the sixteen before it.
TEST(PassCostsTest, StepsAreSeen) {
  const PassCosts costs({{1, 10.0},
                         {8, 10.0},
                         {16, 10.0},
                         {17, 20.0},
                         {24, 20.0},
                         {32, 20.0},
                         {33, 30.0},
                         {48, 30.0}});
  EXPECT_LT(costs.At(16) - costs.At(8), 0.5);
  EXPECT_GT(costs.At(17) - costs.At(16), 5.0);
  EXPECT_LT(costs.At(32) - costs.At(24), 2.0);
  // 15 nodes of little chance fill the tile; the next tile is not worth it.
  const std::vector<float> probs(20, 0.1f);
  EXPECT_EQ(WorthwhileNodes(probs, costs, {}), 15);
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

// Each session alone would stop below the step.
TEST(WorthwhileNodesTest, AStepIsTakenIfTheNodesOfAllSessionsPayIt) {
  const PassCosts stepped({{1, 10.0}, {32, 10.0}, {33, 15.0}, {256, 15.0}});
  std::vector<float> probs = {0.9f};
  while (probs.size() < 20) probs.push_back(0.9f * probs.back());
  PassLoad load = {.other_rows = 24, .other_tokens = 28};
  EXPECT_EQ(WorthwhileNodes(probs, stepped, load), 7);
  load.other_sessions = 7;
  EXPECT_EQ(WorthwhileNodes(probs, stepped, load), 20);
  const PassCosts linear({{1, 1.0}, {64, 64.0}});
  EXPECT_EQ(WorthwhileNodes(
                probs, linear,
                {.other_sessions = 7, .other_rows = 7, .other_tokens = 7}),
            0);
}

TEST(NarrowNodesTest, FewAndLikelyNodesAreTaken) {
  const PassCosts flat({{1, 10.0}, {256, 10.0}});
  const std::vector<float> sure(20, 0.9f);
  EXPECT_EQ(NarrowNodes(sure, flat, {}), kMaxNarrowNodes);
  EXPECT_EQ(NarrowNodes({0.9f, 0.5f, 0.2f}, flat, {}), 2);
  EXPECT_EQ(NarrowNodes({0.2f}, flat, {}), 0);
  EXPECT_EQ(NarrowNodes(sure, PassCosts(), {}), kMaxNarrowNodes);
}

// All sessions follow the same arm: their nodes are in one pass.
TEST(NarrowNodesTest, TheNodesOfAllSessionsFitIntoTheStep) {
  const PassCosts stepped({{1, 10.0}, {32, 10.0}, {33, 20.0}, {64, 20.0}});
  const std::vector<float> sure(20, 0.9f);
  EXPECT_EQ(NarrowNodes(sure, stepped, {.other_sessions = 7}), 3);
  EXPECT_EQ(NarrowNodes(sure, stepped, {.other_sessions = 15}), 1);
  const PassCosts linear({{1, 1.0}, {64, 64.0}});
  EXPECT_EQ(NarrowNodes(sure, linear, {.other_sessions = 7}), 1);
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
