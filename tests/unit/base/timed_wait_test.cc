#include "common/base/timed_wait.h"

#include <atomic>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "gtest/gtest.h"
#include "tests/support/eventually.h"
#include "tests/support/wall_clock.h"

namespace foretoken {
namespace {

using ::foretoken::testing::Eventually;
using ::foretoken::testing::ShiftedWallClock;

constexpr int64_t kTwoHours = 2 * 3600;

TEST(AwaitForTest, EndsWithTheConditionOrTheTime) {
  absl::Mutex mu;
  bool set = false;
  absl::MutexLock lock(&mu);
  const absl::Time start = MonotonicNow();
  EXPECT_FALSE(AwaitFor(mu, absl::Condition(&set), absl::Milliseconds(3)));
  EXPECT_GE(MonotonicNow() - start, absl::Milliseconds(3));
  EXPECT_FALSE(AwaitFor(mu, absl::Condition(&set), absl::ZeroDuration()));
  EXPECT_FALSE(AwaitFor(mu, absl::Condition(&set), -absl::Hours(1)));
  std::thread setter([&] {
    absl::MutexLock setter_lock(&mu);
    set = true;
  });
  EXPECT_TRUE(AwaitFor(mu, absl::Condition(&set), absl::InfiniteDuration()));
  EXPECT_TRUE(AwaitFor(mu, absl::Condition(&set), absl::ZeroDuration()));
  mu.Unlock();
  setter.join();
  mu.Lock();
}

TEST(AwaitForTest, AClockSetForwardEndsNoWaitEarly) {
  absl::Mutex mu;
  bool set = false;
  // A wait that is an hour long by this clock has ended by the kernel's.
  const ShiftedWallClock clock(-kTwoHours);
  std::thread setter([&] {
    absl::SleepFor(absl::Milliseconds(20));
    absl::MutexLock lock(&mu);
    set = true;
  });
  {
    absl::MutexLock lock(&mu);
    EXPECT_TRUE(AwaitFor(mu, absl::Condition(&set), absl::Hours(1)));
  }
  setter.join();
}

TEST(AwaitForTest, AClockSetBackMakesNoWaitLonger) {
  absl::Mutex mu;
  bool never = false;
  std::atomic<bool> ended = false;
  const ShiftedWallClock clock(kTwoHours);
  std::thread waiter([&] {
    absl::MutexLock lock(&mu);
    AwaitFor(mu, absl::Condition(&never), absl::Milliseconds(5));
    ended = true;
  });
  EXPECT_TRUE(Eventually([&] { return ended.load(); }));
  {
    absl::MutexLock lock(&mu);
    never = true;
  }
  waiter.join();
}

TEST(AwaitForTest, AMutexHeldForLongDelaysNoOtherWait) {
  absl::Mutex held;
  bool waits = false, never = false;
  std::thread late([&] {
    absl::MutexLock lock(&held);
    waits = true;
    AwaitFor(held, absl::Condition(&never), absl::Milliseconds(5));
  });
  held.LockWhen(absl::Condition(&waits));
  absl::Mutex other;
  {
    absl::MutexLock lock(&other);
    // Over after the first wait, which cannot end yet.
    EXPECT_FALSE(
        AwaitFor(other, absl::Condition(&never), absl::Milliseconds(30)));
  }
  held.Unlock();
  late.join();
}

// An alarm that outlived its wait would ring the next one, whose own alarm
// lies at the same address.
TEST(AwaitForTest, AWaitThatHasEndedDoesNotEndALaterOne) {
  absl::Mutex mu;
  for (int i = 0; i < 5; ++i) {
    bool set = false, never = false;
    std::thread setter([&] {
      absl::MutexLock lock(&mu);
      set = true;
    });
    {
      absl::MutexLock lock(&mu);
      for (const bool* const condition : {&set, &never}) {
        const absl::Time start = MonotonicNow();
        if (AwaitFor(mu, absl::Condition(condition), absl::Milliseconds(10))) {
          continue;
        }
        EXPECT_GE(MonotonicNow() - start, absl::Milliseconds(10));
      }
    }
    setter.join();
  }
}

// Conditions and times race. Every wait says whether its condition holds, and
// one that ends without it has lasted as long as it should.
TEST(AwaitForTest, ManyShortWaitsEndWithTheirConditionOrTheirTime) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 500; ++i) {
        absl::Mutex mu;
        bool set = false;
        std::thread setter([&] {
          absl::MutexLock lock(&mu);
          set = true;
        });
        {
          absl::MutexLock lock(&mu);
          const absl::Duration time = absl::Microseconds((i * 7 + t) % 90);
          const absl::Time start = MonotonicNow();
          const bool got = AwaitFor(mu, absl::Condition(&set), time);
          EXPECT_EQ(got, set);
          if (!got) {
            EXPECT_GE(MonotonicNow() - start, time);
          }
        }
        setter.join();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace foretoken
