#include "common/engine/busy_watch.h"

#include "gtest/gtest.h"

namespace foretoken {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);

TEST(BusyWatchTest, HangsWhenOnePieceOfWorkTakesTooLong) {
  BusyWatch watch(absl::Seconds(10));
  EXPECT_FALSE(watch.Hangs(kStart + absl::Hours(1)));
  watch.Begin(kStart);
  EXPECT_FALSE(watch.Hangs(kStart + absl::Seconds(10)));
  EXPECT_TRUE(watch.Hangs(kStart + absl::Seconds(11)));
  watch.Begin(kStart + absl::Seconds(9));
  EXPECT_FALSE(watch.Hangs(kStart + absl::Seconds(11)));
  watch.Idle();
  EXPECT_FALSE(watch.Hangs(kStart + absl::Hours(1)));
}

TEST(BusyWatchTest, LongPassesAreGivenMoreTime) {
  BusyWatch watch(absl::Seconds(10));
  watch.EndPass(absl::Seconds(2));
  watch.EndPass(absl::Milliseconds(1));
  watch.Begin(kStart);
  EXPECT_FALSE(watch.Hangs(kStart + absl::Seconds(30)));
  EXPECT_TRUE(watch.Hangs(kStart + absl::Seconds(33)));
  // A long pass is forgotten after many short ones.
  for (int i = 0; i < 1000; ++i) watch.EndPass(absl::Milliseconds(1));
  watch.Begin(kStart);
  EXPECT_TRUE(watch.Hangs(kStart + absl::Seconds(11)));
}

}  // namespace
}  // namespace foretoken
