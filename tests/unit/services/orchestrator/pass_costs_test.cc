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
  const PassCosts costs({{0, 5.0}, {4, NAN}, {8, -1.0}, {2, 9.0}, {16, 7.0}});
  EXPECT_EQ(costs.At(16), 9.0);
  EXPECT_TRUE(costs.known());
  EXPECT_FALSE(PassCosts({{2, 9.0}}).known());
  EXPECT_EQ(PassCosts({{2, 9.0}}).At(64), 9.0);
  EXPECT_EQ(PassCosts().At(1), 0.0);
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
  EXPECT_EQ(WorthwhileNodes({0.5f}, costs, {0, 0, 5.0}), 1);
}

TEST(WorthwhileNodesTest, ASharedPassOfManyRowsMakesNodesDearer) {
  const std::vector<float> probs = {0.5f};
  const PassCosts costs({{1, 10.0}, {16, 10.0}, {64, 58.0}});
  EXPECT_EQ(WorthwhileNodes(probs, costs, {}), 1);
  // 31 other rows that commit 31 tokens: a token for 26 / 32 ms, a row costs 1.
  EXPECT_EQ(WorthwhileNodes(probs, costs, {31, 31, 0}), 0);
}

}  // namespace
}  // namespace foretoken::orchestrator
