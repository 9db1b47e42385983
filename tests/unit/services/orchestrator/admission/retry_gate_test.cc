#include "services/orchestrator/core/admission/retry_gate.h"

#include <algorithm>
#include <string>

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
  absl::Duration Hold(const std::string& caller, absl::Duration hint) {
    absl::Status status = Refusal(hint);
    return gate_.Hold(caller, absl::InfiniteDuration(), status);
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  RetryGate gate_{[this] { return now_; }};
};

constexpr absl::Duration kHint = absl::Milliseconds(160);

TEST_F(RetryGateTest, ACallerThatWaitsIsNeverHeld) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Hold("caller", kHint), absl::ZeroDuration());
    now_ += kHint;
  }
}

TEST_F(RetryGateTest, WhatIsHeldIsTakenOffTheHint) {
  EXPECT_EQ(Hold("caller", kHint), absl::ZeroDuration());
  absl::Status status = Refusal(kHint);
  EXPECT_EQ(gate_.Hold("caller", absl::InfiniteDuration(), status), kHint);
  EXPECT_LE(RetryAfter(status).value(), absl::Milliseconds(1));
  EXPECT_EQ(Hold("other", kHint), absl::ZeroDuration());
}

// Workers of one caller that obey their hints wait for as long as these say.
TEST_F(RetryGateTest, AFewClientsOfACallerWaitForTheirHintsAlone) {
  for (int turn = 0; turn < 50; ++turn) {
    for (int worker = 0; worker < 16; ++worker) {
      EXPECT_LE(Hold("caller", kHint), kHint);
      now_ += kHint / 16;
    }
  }
}

TEST_F(RetryGateTest, AFloodWaitsLongerUpToABound) {
  absl::Duration longest;
  for (int i = 0; i < 64; ++i) {
    longest = std::max(longest, Hold("caller", kHint));
  }
  EXPECT_GT(longest, 3 * kHint);
  for (int i = 0; i < 1000; ++i) Hold("caller", kHint);
  EXPECT_EQ(Hold("caller", kHint), RetryGate::kMaxHold);
  now_ += absl::Minutes(1);  // it has stopped
  EXPECT_EQ(Hold("caller", kHint), absl::ZeroDuration());
}

TEST_F(RetryGateTest, TheAnswerComesBeforeTheDeadline) {
  Hold("caller", kHint);
  absl::Status status = Refusal(kHint);
  EXPECT_EQ(gate_.Hold("caller", kHint / 2, status), kHint / 4);
  EXPECT_EQ(RetryAfter(status), kHint - kHint / 4);
  EXPECT_EQ(gate_.Hold("caller", -kHint, status), absl::ZeroDuration());
}

TEST_F(RetryGateTest, OnlyRefusalsAreHeld) {
  Hold("caller", kHint);
  for (absl::Status status :
       {absl::OkStatus(), absl::InvalidArgumentError("no"),
        absl::ResourceExhaustedError("no hint")}) {
    const absl::Status before = status;
    EXPECT_EQ(gate_.Hold("caller", absl::InfiniteDuration(), status),
              absl::ZeroDuration());
    EXPECT_EQ(status, before);
  }
}

TEST_F(RetryGateTest, RemembersABoundedNumberOfCallers) {
  for (size_t i = 0; i < RetryGate::kMaxCallers; ++i) {
    Hold(absl::StrCat(i), kHint);
  }
  Hold("late", kHint);
  EXPECT_EQ(Hold("late", kHint), absl::ZeroDuration());
  now_ += kHint;  // those before are forgotten
  Hold("late", kHint);
  EXPECT_GT(Hold("late", kHint), absl::ZeroDuration());
}

}  // namespace
}  // namespace foretoken::orchestrator
