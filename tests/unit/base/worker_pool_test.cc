#include "common/base/worker_pool.h"

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <latch>
#include <memory>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::Eventually;
using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

TEST(WorkerPoolTest, RunsAsManyAtOnceAsItHasThreads) {
  constexpr int kThreads = 4;
  // Each waits for all the others: fewer threads would never come to an end.
  std::latch together(kThreads);
  WorkerPool pool(kThreads, 0);
  for (int i = 0; i < kThreads; ++i) {
    FORETOKEN_ASSERT_OK(pool.Submit([&] { together.arrive_and_wait(); }));
  }
}

TEST(WorkerPoolTest, RefusesWhatNeitherRunsNorWaits) {
  absl::Notification go_on;
  std::atomic<int> done{0};
  {
    WorkerPool pool(2, 3);
    for (int i = 0; i < 5; ++i) {
      FORETOKEN_ASSERT_OK(pool.Submit([&] {
        go_on.WaitForNotification();
        ++done;
      }));
    }
    EXPECT_EQ(pool.active(), 5);
    EXPECT_THAT(pool.Submit([] {}),
                StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("")));
    EXPECT_EQ(pool.active(), 5);
    go_on.Notify();
  }
  EXPECT_EQ(done, 5);  // the line was worked off before the pool went
}

// Leaves less address space than a thread's stack needs.
void LeaveNoAddressSpace() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit limit{};
  limit.rlim_cur = limit.rlim_max = pages * sysconf(_SC_PAGESIZE) + (1 << 20);
  if (setrlimit(RLIMIT_AS, &limit) != 0) std::exit(2);
}

TEST(WorkerPoolDeathTest, WithoutRoomForMoreThreadsTheFirstDoesAllWork) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs address space of its own";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        std::atomic<int> done = 0;
        {
          WorkerPool pool(4, 16);
          LeaveNoAddressSpace();
          for (int i = 0; i < 8; ++i) {
            if (!pool.Submit([&] { ++done; }).ok()) std::exit(3);
          }
        }
        std::exit(done == 8 ? 0 : 4);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(WorkerPoolTest, ThereIsRoomAgainOnceWorkIsDone) {
  WorkerPool pool(1, 0);
  for (int i = 0; i < 20; ++i) {
    std::atomic<bool> ran = false;
    FORETOKEN_ASSERT_OK(pool.Submit([&] { ran = true; }));
    // Done a moment after it ran.
    ASSERT_TRUE(Eventually([&] { return pool.active() == 0; }));
    EXPECT_TRUE(ran);
  }
}

TEST(WorkerPoolTest, WhatWorkHeldIsGoneBeforeItCountsAsDone) {
  WorkerPool pool(1, 1);
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = held;
  FORETOKEN_ASSERT_OK(pool.Submit([held = std::move(held)] {}));
  ASSERT_TRUE(Eventually([&] { return pool.active() == 0; }));
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace foretoken
