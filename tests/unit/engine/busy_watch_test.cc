#include "common/engine/busy_watch.h"

#include "gtest/gtest.h"

namespace foretoken {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);

TEST(BusyWatchTest, HangsWhenOnePieceOfWorkTakesTooLong) {
  BusyWatch watch(absl::Seconds(10), absl::ZeroDuration());
  EXPECT_FALSE(watch.Hangs(kStart + absl::Hours(1)));
  watch.Begin(kStart);
  EXPECT_FALSE(watch.Hangs(kStart + absl::Seconds(10)));
  EXPECT_TRUE(watch.Hangs(kStart + absl::Seconds(11)));
  watch.Begin(kStart + absl::Seconds(9));
  EXPECT_FALSE(watch.Hangs(kStart + absl::Seconds(11)));
  watch.Idle();
  EXPECT_FALSE(watch.Hangs(kStart + absl::Hours(1)));
}

TEST(BusyWatchTest, AnEngineWithoutItsDeviceHangsForEver) {
  BusyWatch watch(absl::Seconds(10), absl::ZeroDuration());
  watch.Begin(kStart);
  watch.Lose();
  EXPECT_TRUE(watch.Hangs(kStart));
  watch.EndPass(absl::Milliseconds(1));
  watch.Idle();
  EXPECT_TRUE(watch.Hangs(kStart));
}

TEST(BusyWatchTest, LongPassesAreGivenMoreTime) {
  BusyWatch watch(absl::Seconds(10), absl::ZeroDuration());
  watch.EndPass(absl::Seconds(2));
  for (int i = 0; i < 1000; ++i) watch.EndPass(absl::Milliseconds(1));
  watch.Begin(kStart);
  EXPECT_FALSE(watch.Hangs(kStart + absl::Seconds(30)));
  EXPECT_TRUE(watch.Hangs(kStart + absl::Seconds(33)));
  // A long pass is forgotten after hours of short ones.
  for (int i = 0; i < 4 * 36'000; ++i) watch.EndPass(absl::Milliseconds(100));
  watch.Begin(kStart);
  EXPECT_TRUE(watch.Hangs(kStart + absl::Seconds(11)));
}

TEST(BusyWatchTest, AnEstimateCountsWhateverWasSeen) {
  BusyWatch watch(absl::Seconds(10), absl::Seconds(3));
  for (int i = 0; i < 2; ++i) {
    watch.Begin(kStart);
    EXPECT_FALSE(watch.Hangs(kStart + absl::Seconds(47)));
    EXPECT_TRUE(watch.Hangs(kStart + absl::Seconds(49)));
    watch.EndPass(absl::Milliseconds(1));
  }
}

TEST(BusyWatchTest, AnEstimateOfHoursIsNotBelieved) {
  BusyWatch watch(absl::Seconds(10), absl::Hours(5));
  watch.Begin(kStart);
  EXPECT_FALSE(watch.Hangs(kStart + absl::Seconds(159)));
  EXPECT_TRUE(watch.Hangs(kStart + absl::Seconds(161)));
}

}  // namespace
}  // namespace foretoken
