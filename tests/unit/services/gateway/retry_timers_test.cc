#include "services/gateway/core/retry_timers.h"

#include <optional>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace foretoken::gateway {
namespace {

TEST(RetryTimersTest, WorkRunsAfterItsDelay) {
  RetryTimers timers;
  absl::Notification ran;
  ASSERT_TRUE(timers.RunAfter(absl::Milliseconds(1), [&] { ran.Notify(); }));
  ran.WaitForNotification();
}

TEST(RetryTimersTest, HurriedWorkDoesNotWait) {
  RetryTimers timers;
  absl::Notification ran;
  const std::optional<RetryTimers::Ticket> ticket =
      timers.RunAfter(absl::Hours(24), [&] { ran.Notify(); });
  ASSERT_TRUE(ticket.has_value());
  timers.Hurry(*ticket);
  ran.WaitForNotification();
}

TEST(RetryTimersTest, TheEndRunsWhatWaitsAndTakesNoMore) {
  RetryTimers timers;
  bool ran = false;
  bool taken = true;
  ASSERT_TRUE(timers.RunAfter(absl::Hours(24), [&] {
    taken = timers.RunAfter(absl::Hours(24), [] {}).has_value();
    ran = true;
  }));
  timers.Stop();
  EXPECT_TRUE(ran);
  EXPECT_FALSE(taken);
  EXPECT_FALSE(timers.RunAfter(absl::ZeroDuration(), [] {}).has_value());
}

}  // namespace
}  // namespace foretoken::gateway
