#include "common/base/byte_budget.h"

#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::IsOk;
using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

TEST(ByteBudgetTest, AShareHoldsItsBytesUntilItIsDestroyed) {
  ByteBudget budget(1000);
  {
    auto share = budget.Take("a", 300);
    FORETOKEN_ASSERT_OK(share);
    EXPECT_EQ(budget.used(), 300);
    FORETOKEN_EXPECT_OK(share->Resize(500));
    EXPECT_EQ(budget.used(), 500);
    FORETOKEN_EXPECT_OK(share->Resize(100));
    const ByteBudget::Share moved = *std::move(share);
    EXPECT_EQ(moved.bytes(), 100);
    EXPECT_EQ(budget.used(), 100);
  }
  EXPECT_EQ(budget.used(), 0);
}

TEST(ByteBudgetTest, OneOwnerGetsThreeQuartersInManyPieces) {
  ByteBudget budget(1000);
  std::vector<ByteBudget::Share> held;
  while (true) {
    auto share = budget.Take("flood", 10);
    if (!share.ok()) {
      EXPECT_THAT(share, StatusIs(absl::StatusCode::kResourceExhausted,
                                  HasSubstr("750 by this caller")));
      break;
    }
    held.push_back(*std::move(share));
  }
  EXPECT_EQ(budget.used(), 750);
}

TEST(ByteBudgetTest, OwnersThatComeLaterFindRoom) {
  ByteBudget budget(1 << 20);
  std::vector<ByteBudget::Share> held;
  for (const char* owner : {"a", "b", "c"}) {
    const int64_t before = budget.used();
    while (true) {
      auto share = budget.Take(owner, 1 << 10);
      if (!share.ok()) break;
      held.push_back(*std::move(share));
    }
    EXPECT_GT(budget.used(), before) << owner;
  }
  EXPECT_THAT(budget.Take("victim", 1 << 10), IsOk());
}

TEST(ByteBudgetTest, WhatNeverFitsIsTheRequestsFault) {
  ByteBudget budget(1000);
  EXPECT_THAT(budget.Take("a", 751),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("751 bytes of memory, want at most 750")));
  auto share = budget.Take("a", 700);
  FORETOKEN_ASSERT_OK(share);
  EXPECT_THAT(share->Resize(751),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("751")));
  EXPECT_EQ(share->bytes(), 700);
}

TEST(ByteBudgetTest, AWaitEndsWhenTheBytesAreFreed) {
  ByteBudget budget(1000);
  auto first = budget.Take("a", 700);
  FORETOKEN_ASSERT_OK(first);
  EXPECT_THAT(budget.TakeWhenFree("a", 500, absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("")));
  std::thread waiter([&] {
    EXPECT_THAT(budget.TakeWhenFree("a", 500, absl::InfiniteDuration()),
                IsOk());
  });
  first->Release();
  waiter.join();
  EXPECT_EQ(budget.used(), 0);
}

}  // namespace
}  // namespace foretoken
