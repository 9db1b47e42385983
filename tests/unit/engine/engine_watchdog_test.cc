#include "common/engine/engine_watchdog.h"

#include <atomic>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/support/eventually.h"

namespace foretoken {
namespace {

using ::foretoken::testing::Eventually;

WatchdogOptions Options() {
  return {.name = "engine", .hang_timeout = absl::Milliseconds(8)};
}

TEST(EngineWatchdogTest, SaysWhenAnEngineHangsAndWhenItWorksAgain) {
  std::atomic<bool> hangs{true};
  std::atomic<int> reported{-1}, changes{0};
  EngineWatchdog watchdog(
      Options(), [&] { return hangs.load(); },
      [&](bool now) { reported = now ? 1 : 0; });
  watchdog.Watch([&] { ++changes; });
  EXPECT_TRUE(Eventually([&] { return reported == 1; }));
  EXPECT_TRUE(Eventually([&] { return watchdog.hangs(); }));
  EXPECT_EQ(watchdog.Check().code(), absl::StatusCode::kDeadlineExceeded);
  hangs = false;
  EXPECT_TRUE(Eventually([&] { return reported == 0; }));
  EXPECT_TRUE(Eventually([&] { return changes >= 1; }));
  EXPECT_TRUE(watchdog.Check().ok());
  watchdog.Watch(nullptr);
}

TEST(EngineWatchdogTest, TellsOnceThatAnEngineHasFailed) {
  std::atomic<bool> failed{false};
  std::atomic<int> asked{0}, changes{0};
  WatchdogOptions options = Options();
  options.has_failed = [&] {
    ++asked;
    return failed.load();
  };
  EngineWatchdog watchdog(options, [] { return false; }, [](bool) {});
  watchdog.Watch([&] { ++changes; });
  EXPECT_TRUE(Eventually([&] { return asked > 3; }));
  EXPECT_EQ(changes, 0);
  failed = true;
  EXPECT_TRUE(Eventually([&] { return changes == 1; }));
  const int last = asked;
  absl::SleepFor(3 * options.hang_timeout);
  EXPECT_EQ(asked, last);
  EXPECT_EQ(changes, 1);
  EXPECT_FALSE(watchdog.hangs());
  watchdog.Watch(nullptr);
}

// As after a time in which the process stood still.
TEST(EngineWatchdogTest, TwoLooksInARowAreNotEnough) {
  std::atomic<int> looks{0}, reports{0};
  const EngineWatchdog watchdog(
      Options(), [&] { return ++looks % EngineWatchdog::kLooks != 0; },
      [&](bool) { ++reports; });
  EXPECT_TRUE(Eventually([&] { return looks > 30; }));
  EXPECT_EQ(reports.load(), 0);
  EXPECT_FALSE(watchdog.hangs());
}

TEST(EngineWatchdogTest, EndsAProcessWhoseEngineDoesNotRecover) {
  WatchdogOptions options = Options();
  std::atomic<int> looks{0}, ended_at{0};
  const auto hangs = [&] {
    ++looks;
    return true;
  };
  {
    const EngineWatchdog patient(
        options, hangs, [](bool) {}, [&] { ended_at = looks.load(); });
    EXPECT_TRUE(Eventually([&] { return looks > 30; }));
    EXPECT_EQ(ended_at.load(), 0);
  }
  options.exit_after = absl::Milliseconds(10);
  looks = 0;
  const EngineWatchdog strict(
      options, hangs, [](bool) {},
      [&] {
        if (ended_at == 0) ended_at = looks.load();
      });
  EXPECT_TRUE(Eventually([&] { return ended_at != 0; }));
  // Ten more looks of a millisecond than it takes to say that it hangs.
  EXPECT_EQ(ended_at.load(), EngineWatchdog::kLooks + 10);
}

}  // namespace
}  // namespace foretoken
