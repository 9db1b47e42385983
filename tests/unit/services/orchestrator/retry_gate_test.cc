#include "services/orchestrator/core/retry_gate.h"

#include "absl/strings/str_cat.h"
#include "common/base/retry_after.h"
#include "gtest/gtest.h"

namespace foretoken::orchestrator {
namespace {

class RetryGateTest : public ::testing::Test {
 protected:
  static absl::Status Refusal(absl::Duration hint) {
    return WithRetryAfter(absl::ResourceExhaustedError("full"), hint);
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  RetryGate gate_{[this] { return now_; }};
};

TEST_F(RetryGateTest, ACallerThatWaitsIsNeverHeld) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(gate_.Hold("caller", Refusal(absl::Milliseconds(300))),
              absl::ZeroDuration());
    now_ += absl::Milliseconds(300);
  }
}

TEST_F(RetryGateTest, OneThatDoesNotWaitsLongerAndLonger) {
  const absl::Status refusal = Refusal(absl::Milliseconds(300));
  gate_.Hold("caller", refusal);
  now_ += absl::Milliseconds(100);
  EXPECT_EQ(gate_.Hold("caller", refusal), absl::Milliseconds(300));
  EXPECT_EQ(gate_.Hold("caller", refusal), absl::Milliseconds(600));
  EXPECT_EQ(gate_.Hold("caller", refusal), RetryGate::kMaxHold);
  EXPECT_EQ(gate_.Hold("other", refusal), absl::ZeroDuration());
  now_ += RetryGate::kMaxHold;  // it has learnt
  EXPECT_EQ(gate_.Hold("caller", refusal), absl::ZeroDuration());
  EXPECT_EQ(gate_.Hold("caller", refusal), absl::Milliseconds(300));
}

TEST_F(RetryGateTest, AHoldIsBoundedAndForRefusalsOnly) {
  gate_.Hold("caller", Refusal(absl::Minutes(1)));
  EXPECT_EQ(gate_.Hold("caller", Refusal(absl::Minutes(1))),
            RetryGate::kMaxHold);
  EXPECT_EQ(gate_.Hold("caller", absl::OkStatus()), absl::ZeroDuration());
  EXPECT_EQ(gate_.Hold("caller", absl::InvalidArgumentError("no")),
            absl::ZeroDuration());
  EXPECT_EQ(gate_.Hold("caller", absl::ResourceExhaustedError("no hint")),
            absl::ZeroDuration());
}

TEST_F(RetryGateTest, RemembersABoundedNumberOfCallers) {
  for (size_t i = 0; i < RetryGate::kMaxCallers; ++i) {
    gate_.Hold(absl::StrCat(i), Refusal(absl::Seconds(1)));
  }
  gate_.Hold("late", Refusal(absl::Seconds(1)));
  EXPECT_EQ(gate_.Hold("late", Refusal(absl::Seconds(1))),
            absl::ZeroDuration());
  now_ += absl::Seconds(1);  // those before are forgotten
  gate_.Hold("late", Refusal(absl::Seconds(1)));
  EXPECT_GT(gate_.Hold("late", Refusal(absl::Seconds(1))),
            absl::ZeroDuration());
}

}  // namespace
}  // namespace foretoken::orchestrator
