#include "services/orchestrator/core/admission/refusals.h"

#include <atomic>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/base/retry_after.h"
#include "gmock/gmock.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"

namespace foretoken::orchestrator {
namespace {

using ::foretoken::testing::Eventually;
using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

class RefusalsTest : public ::testing::Test {
 protected:
  // A refusal of the caller, and how it is delivered.
  struct Refused {
    Refusals::Ticket ticket;
    absl::Status status;
    absl::Notification delivered;
  };
  void Refuse(Refused& refused, const char* caller = "me",
              absl::Time deadline = absl::InfiniteFuture()) {
    refused.ticket = refusals_.End({.name = caller}, deadline,
                                   absl::ResourceExhaustedError("full"),
                                   [&](const absl::Status& status) {
                                     refused.status = status;
                                     refused.delivered.Notify();
                                   });
  }
  // The first refusal is not held, so the next is.
  void RefuseOnce() {
    Refused first;
    Refuse(first);
    first.delivered.WaitForNotification();
    ASSERT_TRUE(Eventually([this] { return refusals_.active() == 0; }));
  }

  void Pass(absl::Duration time) {
    absl::MutexLock lock(&mu_);
    now_ += time;
  }

  absl::Mutex mu_;
  // Stands still unless it is moved: what is held stays held.
  absl::Time now_ ABSL_GUARDED_BY(mu_) = absl::UnixEpoch();
  std::atomic<int> asked_{0};
  // An hour between retries: what is held is held for RetryGate::kMaxHold.
  Refusals refusals_{[this](const Caller&) {
                       ++asked_;
                       return absl::Hours(1);
                     },
                     [this] {
                       absl::MutexLock lock(&mu_);
                       return now_;
                     }};
};

TEST_F(RefusalsTest, ARefusalGetsAHintUnlessItHasOne) {
  const absl::Status hinted =
      refusals_.WithHint(absl::ResourceExhaustedError("full"), {});
  EXPECT_EQ(RetryAfter(hinted), absl::Hours(1));
  const absl::Status own =
      WithRetryAfter(absl::ResourceExhaustedError("full"), absl::Seconds(1));
  EXPECT_EQ(RetryAfter(refusals_.WithHint(own, {})), absl::Seconds(1));
  EXPECT_EQ(asked_, 1);
  EXPECT_FALSE(RetryAfter(refusals_.WithHint(absl::CancelledError(""), {})));
}

TEST_F(RefusalsTest, TheFirstIsDeliveredSoonAndTheNextLater) {
  RefuseOnce();
  Refused held;
  Refuse(held);
  Pass(RetryGate::kMaxHold - absl::Milliseconds(1));
  EXPECT_EQ(refusals_.active(), 1);
  Pass(absl::Milliseconds(1));
  held.delivered.WaitForNotification();
  EXPECT_THAT(held.status, StatusIs(absl::StatusCode::kResourceExhausted,
                                    HasSubstr("full")));
  // The hint says so much less.
  EXPECT_EQ(RetryAfter(held.status), absl::Hours(1) - RetryGate::kMaxHold);
}

TEST_F(RefusalsTest, OtherCallersAndOtherErrorsAreNotHeld) {
  RefuseOnce();
  Refused held;
  Refuse(held);
  Refused other;
  Refuse(other, "other");
  other.delivered.WaitForNotification();
  absl::Notification failed;
  refusals_.End({.name = "me"}, absl::InfiniteFuture(),
                absl::InvalidArgumentError("top_k"),
                [&](const absl::Status& status) {
                  EXPECT_TRUE(absl::IsInvalidArgument(status));
                  failed.Notify();
                });
  failed.WaitForNotification();
  EXPECT_TRUE(Eventually([this] { return refusals_.active() == 1; }));
  EXPECT_FALSE(held.delivered.HasBeenNotified());
  refusals_.Hurry(held.ticket);
  held.delivered.WaitForNotification();
}

TEST_F(RefusalsTest, ACallThatLeavesIsNotHeld) {
  RefuseOnce();
  Refused held;
  Refuse(held);
  refusals_.Hurry(held.ticket);
  held.delivered.WaitForNotification();
}

TEST_F(RefusalsTest, ADrainHoldsNone) {
  RefuseOnce();
  Refused held, late;
  Refuse(held);
  refusals_.StopHolding();
  held.delivered.WaitForNotification();
  Refuse(late);
  late.delivered.WaitForNotification();
}

TEST_F(RefusalsTest, AHoldEndsInTimeForTheDeadline) {
  RefuseOnce();
  Refused held;
  const absl::Duration left = absl::Milliseconds(400);
  Refuse(held, "me", absl::UnixEpoch() + left);
  EXPECT_EQ(refusals_.active(), 1);
  Pass(left / 2);
  held.delivered.WaitForNotification();
  EXPECT_EQ(RetryAfter(held.status), absl::Hours(1) - left / 2);
}

}  // namespace
}  // namespace foretoken::orchestrator
