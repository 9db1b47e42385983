#include "common/base/wakeup.h"

#include <atomic>
#include <thread>

#include "common/base/clock.h"
#include "gtest/gtest.h"
#include "tests/support/eventually.h"
#include "tests/support/wall_clock.h"

namespace foretoken {
namespace {

using ::foretoken::testing::Eventually;
using ::foretoken::testing::ShiftedWallClock;

constexpr int64_t kTwoHours = 2 * 3600;

TEST(WakeupTest, ASleepEndsWithASignalOrTheTime) {
  Wakeup wakeup;
  const absl::Time start = MonotonicNow();
  wakeup.SleepFor(absl::Milliseconds(3));
  EXPECT_GE(MonotonicNow() - start, absl::Milliseconds(3));
  wakeup.SleepFor(-absl::Hours(1));
  // A signal between two sleeps is not lost.
  wakeup.Signal();
  wakeup.SleepFor(absl::InfiniteDuration());
  std::thread signaller([&] { wakeup.Signal(); });
  wakeup.SleepFor(absl::Hours(1));
  signaller.join();
}

TEST(WakeupTest, AClockThatIsSetChangesNoSleep) {
  for (const int64_t shift : {-kTwoHours, kTwoHours}) {
    const ShiftedWallClock clock(shift);
    Wakeup wakeup;
    std::atomic<int> ended{0};
    std::thread sleeper([&] {
      wakeup.SleepFor(absl::Milliseconds(5));
      ++ended;
      wakeup.SleepFor(absl::Hours(1));
      ++ended;
    });
    EXPECT_TRUE(Eventually([&] { return ended == 1; }));
    absl::SleepFor(absl::Milliseconds(20));
    EXPECT_EQ(ended.load(), 1);
    wakeup.Signal();
    sleeper.join();
  }
}

}  // namespace
}  // namespace foretoken
