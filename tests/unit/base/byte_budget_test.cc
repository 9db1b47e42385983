#include "common/base/byte_budget.h"

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::Eventually;
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

TEST(ByteBudgetTest, APartThatIsSplitOffHoldsItsBytesForTheSameOwner) {
  ByteBudget budget(1000);
  auto share = budget.Take("a", 300);
  FORETOKEN_ASSERT_OK(share);
  ByteBudget::Share part = share->Split(200);
  EXPECT_EQ(share->bytes(), 100);
  EXPECT_EQ(part.bytes(), 200);
  EXPECT_EQ(budget.used(), 300);
  FORETOKEN_EXPECT_OK(part.Resize(250));
  EXPECT_EQ(budget.held("a"), 350);
  share->Release();
  EXPECT_EQ(budget.held("a"), 250);
  EXPECT_EQ(part.Split(0).bytes(), 0);
  part.Release();
  EXPECT_EQ(budget.used(), 0);
}

TEST(ByteBudgetTest, EveryChangeIsTold) {
  std::vector<int64_t> told;
  ByteBudget budget(1000, [&](int64_t used) { told.push_back(used); });
  {
    const auto first = budget.Take("a", 300);
    const auto second = budget.TakeWhenFree("b", 100, absl::ZeroDuration());
    EXPECT_FALSE(budget.Take("a", 700).ok());
  }
  EXPECT_THAT(told, ::testing::ElementsAre(300, 400, 300, 0));
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

// Waits for bytes on a thread of its own and holds them.
class Waiter {
 public:
  Waiter(ByteBudget& budget, std::string owner, int64_t bytes)
      : thread_([this, &budget, owner = std::move(owner), bytes] {
          share_ = budget.TakeWhenFree(owner, bytes, absl::InfiniteDuration());
          done_ = true;
        }) {}
  ~Waiter() {
    if (thread_.joinable()) thread_.join();
  }
  bool done() const { return done_; }
  // What it got.
  ByteBudget::Share& Await() {
    thread_.join();
    return *share_;
  }

 private:
  absl::StatusOr<ByteBudget::Share> share_ = absl::UnknownError("waits");
  std::atomic<bool> done_{false};
  std::thread thread_;  // last: uses the above
};

TEST(ByteBudgetTest, SmallWaitersDoNotStarveALargeOne) {
  ByteBudget budget(1000);
  auto held = budget.Take("small", 200);
  FORETOKEN_ASSERT_OK(held);
  Waiter large(budget, "large", 700);
  ASSERT_TRUE(Eventually([&] { return budget.waiting() == 1; }));
  // It would fit, but the other owner came first and holds nothing.
  EXPECT_THAT(budget.TakeWhenFree("small", 100, absl::Milliseconds(50)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("")));
  EXPECT_THAT(budget.Take("small", 100), IsOk());  // waits for nobody
  EXPECT_FALSE(large.done());
  held->Release();
  EXPECT_EQ(large.Await().bytes(), 700);
}

TEST(ByteBudgetTest, AnOwnerThatHoldsBytesLetsOthersPassButNotItself) {
  ByteBudget budget(1000);
  auto held = budget.Take("large", 200);
  FORETOKEN_ASSERT_OK(held);
  Waiter large(budget, "large", 700);
  ASSERT_TRUE(Eventually([&] { return budget.waiting() == 1; }));
  EXPECT_THAT(budget.TakeWhenFree("small", 100, absl::InfiniteDuration()),
              IsOk());
  EXPECT_THAT(budget.TakeWhenFree("large", 100, absl::Milliseconds(50)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("")));
  held->Release();
  EXPECT_EQ(large.Await().bytes(), 700);
}

TEST(ByteBudgetTest, ACancelledWaitEndsAndLetsOthersPass) {
  ByteBudget budget(1000);
  const auto held = budget.Take("a", 600);
  FORETOKEN_ASSERT_OK(held);
  std::atomic<bool> cancelled{false};
  std::thread waiter([&] {
    EXPECT_THAT(budget.TakeWhenFree("b", 700, absl::InfiniteDuration(),
                                    [&] { return cancelled.load(); }),
                StatusIs(absl::StatusCode::kCancelled, HasSubstr("")));
  });
  ASSERT_TRUE(Eventually([&] { return budget.waiting() == 1; }));
  cancelled = true;
  EXPECT_THAT(budget.TakeWhenFree("c", 100, absl::InfiniteDuration()), IsOk());
  waiter.join();
}

}  // namespace
}  // namespace foretoken
