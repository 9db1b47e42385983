#include "common/speculation/verify_mailbox.h"

#include <thread>

#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/wall_clock.h"

namespace foretoken {
namespace {

using ::foretoken::testing::ShiftedWallClock;
using ::foretoken::testing::StatusIs;
using ::testing::_;

TEST(VerifyMailboxTest, AClockSetForwardExpiresNoRequest) {
  VerifyMailbox mailbox;
  const absl::Time deadline = MonotonicNow() + absl::Hours(1);
  const ShiftedWallClock clock(-2 * 3600);
  std::thread engine([&] {
    absl::SleepFor(absl::Milliseconds(20));
    mailbox.OnOpened("numerics");
    absl::SleepFor(absl::Milliseconds(20));
    mailbox.OnRound(RoundResult());
  });
  FORETOKEN_EXPECT_OK(mailbox.AwaitOpened(deadline).value());
  FORETOKEN_EXPECT_OK(mailbox.CollectRound(deadline));
  engine.join();
}

TEST(VerifyMailboxTest, TheDeadlineEndsAWait) {
  VerifyMailbox mailbox;
  EXPECT_THAT(mailbox.CollectRound(MonotonicNow() + absl::Milliseconds(2)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, _));
}

}  // namespace
}  // namespace foretoken
