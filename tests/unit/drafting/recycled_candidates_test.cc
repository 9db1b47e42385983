#include "common/drafting/recycled_candidates.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

using ::testing::ElementsAre;
using ::testing::IsNull;
using ::testing::NotNull;

constexpr TokenId kAny = RecycledCandidates::kAny;

void AddOne(RecycledCandidates& table, TokenId previous, TokenId last,
            TokenId token, bool own = false) {
  table.Add(previous, last, {token}, {0}, own);
}

TEST(RecycledCandidatesTest, TheLatestSightOfAContextIsFound) {
  RecycledCandidates table(256);
  EXPECT_THAT(table.Find(1, 2), IsNull());
  AddOne(table, 1, 2, 10);
  AddOne(table, kAny, 2, 11);
  AddOne(table, 1, 2, 12);
  EXPECT_THAT(table.Find(2, 1), IsNull());
  ASSERT_THAT(table.Find(1, 2), NotNull());
  EXPECT_EQ(table.Find(1, 2)->tokens[0], 12);
  EXPECT_EQ(table.Find(1, 2)->size, 1);
  ASSERT_THAT(table.Find(kAny, 2), NotNull());
  EXPECT_EQ(table.Find(kAny, 2)->tokens[0], 11);
}

TEST(RecycledCandidatesTest, SharesAreASoftMaxOverTheCandidates) {
  RecycledCandidates table(256);
  // 11 sixteenths of a nat are about a half; the third place is empty.
  table.Add(1, 2, {7, 8, -1, 9}, {0, 11, 255, 11}, false);
  const RecycledCandidates::Sight* const sight = table.Find(1, 2);
  ASSERT_THAT(sight, NotNull());
  ASSERT_EQ(sight->size, 3);
  EXPECT_NEAR(sight->ShareOf(7), 0.5, 0.01);
  EXPECT_NEAR(sight->ShareOf(8), 0.25, 0.01);
  EXPECT_NEAR(sight->ShareOf(9), 0.25, 0.01);
  EXPECT_EQ(sight->ShareOf(-1), 0.0f);
  table.Add(5, 6, {-1, -1}, {0, 0}, false);
  EXPECT_THAT(table.Find(5, 6), IsNull());
}

TEST(RecycledCandidatesTest, MemoryIsBoundedAndTheOldestMakeRoom) {
  constexpr int kSights = 1024;
  RecycledCandidates table(kSights);
  EXPECT_EQ(table.MemoryBytes(), 0u);
  for (TokenId token = 0; token < 100 * kSights; ++token) {
    AddOne(table, token, token + 1, token);
    ASSERT_LE(table.MemoryBytes(), size_t{64 * kSights});
    ASSERT_THAT(table.Find(token, token + 1), NotNull());
  }
  int kept = 0, young = 0;
  for (TokenId token = 0; token < 100 * kSights; ++token) {
    const bool held = table.Find(token, token + 1) != nullptr;
    kept += held;
    young += held && token >= 98 * kSights;
  }
  EXPECT_GT(kept, kSights * 9 / 10);
  EXPECT_LE(kept, kSights);
  // Sets differ in load, so the border between old and young is not sharp.
  EXPECT_GT(young, kept * 9 / 10);
  table.Clear();
  EXPECT_EQ(table.MemoryBytes(), 0u);
  EXPECT_THAT(table.Find(100 * kSights - 1, 100 * kSights), IsNull());
}

TEST(RecycledCandidatesTest, GrowingLosesNothing) {
  RecycledCandidates table(1 << 16);
  for (TokenId token = 0; token < 100; ++token) {
    AddOne(table, token, token, token + 1);
  }
  for (TokenId token = 1000; token < 4000; ++token) {
    AddOne(table, token, token, token + 1);
  }
  int lost = 0;
  for (TokenId token = 1000; token < 4000; ++token) {
    const auto* const sight = table.Find(token, token);
    lost += sight == nullptr;
    if (sight != nullptr) {
      ASSERT_EQ(sight->tokens[0], token + 1);
    }
  }
  // A full set of a table that is mostly empty loses its oldest.
  EXPECT_LT(lost, 60);
}

TEST(RecycledCandidatesTest, OnlyOwnSightsAreHandedOn) {
  RecycledCandidates request(256), scope(256);
  AddOne(scope, 1, 1, 50, true);
  AddOne(request, 1, 1, 10, true);
  AddOne(request, 2, 2, 20, false);
  AddOne(request, 3, 3, 30, true);
  AddOne(request, 3, 3, 31, false);  // once own, its context stays so
  scope.AddOwn(request);
  EXPECT_EQ(scope.Find(1, 1)->tokens[0], 10);
  EXPECT_THAT(scope.Find(2, 2), IsNull());
  ASSERT_THAT(scope.Find(3, 3), NotNull());
  EXPECT_EQ(scope.Find(3, 3)->tokens[0], 31);
}

TEST(RecycledCandidatesTest, ARoomThatGoesToAnotherContextIsNotOwn) {
  RecycledCandidates request(256), scope(256);
  for (TokenId token = 0; token < 4000; ++token) {
    AddOne(request, token, token, 1, true);
  }
  for (TokenId token = 4000; token < 40000; ++token) {
    AddOne(request, token, token, 1, false);
  }
  scope.AddOwn(request);
  EXPECT_TRUE(scope.empty());
}

}  // namespace
}  // namespace foretoken
