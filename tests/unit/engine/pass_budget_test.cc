#include "common/engine/pass_budget.h"

#include "gtest/gtest.h"

namespace foretoken {
namespace {

TEST(PassBudgetTest, RoundsLeaveTheTextItsRows) {
  PassBudget budget(10, 3);
  EXPECT_TRUE(budget.TakeRound(4));
  EXPECT_FALSE(budget.TakeRound(4));
  EXPECT_TRUE(budget.TakeRound(3));
  EXPECT_EQ(budget.TakeText(2), 2);
  EXPECT_EQ(budget.TakeText(9), 1);
  EXPECT_EQ(budget.TakeText(9), 0);
}

TEST(PassBudgetTest, TheFirstRoundAlwaysFits) {
  PassBudget budget(10, 3);
  EXPECT_TRUE(budget.TakeRound(9));
  EXPECT_FALSE(budget.TakeRound(1));
  EXPECT_EQ(budget.TakeText(5), 1);  // what the round has left
}

TEST(PassBudgetTest, TextAloneGetsTheWholePass) {
  PassBudget budget(10, 3);
  EXPECT_TRUE(budget.TakeRound(6));
  budget.GiveBack(6);
  EXPECT_EQ(budget.TakeText(50), 10);
  EXPECT_EQ(budget.TakeText(1), 0);
}

TEST(PassBudgetTest, TextBesideRoundsGetsNoMoreThanItsRows) {
  PassBudget budget(10, 3);
  EXPECT_TRUE(budget.TakeRound(1));
  EXPECT_EQ(budget.TakeText(50), 3);
}

}  // namespace
}  // namespace foretoken
