#include "common/base/log_throttle.h"

#include "gtest/gtest.h"

namespace foretoken {
namespace {

TEST(LogThrottleTest, AFloodIsCountedInsteadOfWritten) {
  absl::Time now = absl::FromUnixSeconds(1000);
  LogThrottle throttle([&now] { return now; });
  int written = 0;
  for (int i = 0; i < 1000; ++i) written += throttle.Take();
  EXPECT_EQ(written, LogThrottle::kBurst);
  now += absl::Seconds(1);
  written = 0;
  for (int i = 0; i < 10; ++i) written += throttle.Take();
  EXPECT_EQ(written, LogThrottle::kPerSecond);
  EXPECT_EQ(throttle.Skipped(), " (955 such lines left out)");
  EXPECT_EQ(throttle.Skipped(), "");
}

}  // namespace
}  // namespace foretoken
