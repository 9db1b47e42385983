#include "common/base/timer_thread.h"

#include <atomic>
#include <memory>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "tests/support/eventually.h"

namespace foretoken {
namespace {

using ::testing::ElementsAre;

TEST(TimerThreadTest, WorkRunsInTheOrderOfItsTimes) {
  std::vector<int> order;
  {
    TimerThread timers([] { return absl::UnixEpoch(); });
    const absl::Time later = absl::UnixEpoch() + absl::Hours(1);
    timers.RunAt(later + absl::Hours(1), [&] { order.push_back(3); });
    timers.RunAt(later, [&] { order.push_back(1); });
    timers.RunAt(later, [&] { order.push_back(2); });
    absl::Notification due;
    timers.RunAt(absl::InfinitePast(), [&] {
      order.push_back(0);
      due.Notify();
    });
    due.WaitForNotification();
    // The work counts until it has returned.
    EXPECT_TRUE(testing::Eventually([&] { return timers.active() == 3; }))
        << "the others' times have not come";
  }
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 3));
}

TEST(TimerThreadTest, ItNeverRunsInTheThreadThatAsks) {
  TimerThread timers;
  absl::Mutex mu;
  absl::Notification done;
  {
    absl::MutexLock held(&mu);
    timers.RunAt(absl::InfinitePast(), [&] {
      absl::MutexLock lock(&mu);  // would not return inside of RunAt
      done.Notify();
    });
  }
  done.WaitForNotification();
}

TEST(TimerThreadTest, HurriedWorkRunsNowAndOnce) {
  TimerThread timers;
  int runs = 0;
  absl::Notification done;
  const auto ticket = timers.RunAt(absl::InfiniteFuture(), [&] {
    ++runs;
    done.Notify();
  });
  timers.Hurry(ticket);
  done.WaitForNotification();
  timers.Hurry(ticket);
  EXPECT_TRUE(testing::Eventually([&] { return timers.active() == 0; }));
  EXPECT_EQ(runs, 1);
}

TEST(TimerThreadTest, AllOfItIsHurriedAndWhatComesLaterIsNot) {
  TimerThread timers;
  std::atomic<int> runs{0};
  for (int i = 0; i < 3; ++i) {
    timers.RunAt(absl::InfiniteFuture(), [&] { ++runs; });
  }
  timers.HurryAll();
  timers.RunAt(absl::InfiniteFuture(), [] {});
  EXPECT_TRUE(testing::Eventually([&] { return timers.active() == 1; }));
  EXPECT_EQ(runs, 3);
}

TEST(TimerThreadTest, WhatComesBeforeTheNextTimeIsNotLate) {
  TimerThread timers;
  timers.RunAt(MonotonicNow() + absl::Hours(1), [] {});
  absl::Notification done;
  timers.RunAt(MonotonicNow() + absl::Milliseconds(5), [&] { done.Notify(); });
  done.WaitForNotification();
  // It counts until its function has returned.
  EXPECT_TRUE(testing::Eventually([&] { return timers.active() == 1; }));
}

TEST(TimerThreadTest, CapturesAreFreedAfterTheirWork) {
  TimerThread timers;
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = held;
  timers.RunAt(absl::InfinitePast(), [held] {});
  held.reset();
  EXPECT_TRUE(testing::Eventually([&] { return watched.expired(); }));
}

}  // namespace
}  // namespace foretoken
