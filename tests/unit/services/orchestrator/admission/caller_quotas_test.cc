#include "services/orchestrator/core/admission/caller_quotas.h"

#include <string>

#include "common/base/retry_after.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken::orchestrator {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

class CallerQuotasTest : public ::testing::Test {
 protected:
  static Caller Of(int64_t requests, int64_t tokens) {
    Caller caller;
    caller.name = "me";
    caller.requests_per_minute = requests;
    caller.tokens_per_minute = tokens;
    return caller;
  }

  absl::Time now_ = absl::UnixEpoch();
  CallerQuotas quotas_{[this] { return now_; }};
};

TEST_F(CallerQuotasTest, WithoutQuotasEverythingFits) {
  for (int i = 0; i < 100; ++i) {
    FORETOKEN_EXPECT_OK(quotas_.Take(Of(0, 0), int64_t{1} << 50));
  }
}

TEST_F(CallerQuotasTest, RequestsBeyondTheQuotaLearnWhenTheyFit) {
  const Caller caller = Of(60, 0);
  for (int i = 0; i < 60; ++i) FORETOKEN_EXPECT_OK(quotas_.Take(caller, 1));
  const absl::Status refused = quotas_.Take(caller, 1);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("60 requests a minute")));
  EXPECT_EQ(RetryAfter(refused), absl::Seconds(1));
  now_ += absl::Milliseconds(750);
  EXPECT_EQ(RetryAfter(quotas_.Take(caller, 1)), absl::Milliseconds(250));
  now_ += absl::Milliseconds(250);
  FORETOKEN_EXPECT_OK(quotas_.Take(caller, 1));
  EXPECT_EQ(RetryAfter(quotas_.Take(caller, 1)), absl::Seconds(1));
}

TEST_F(CallerQuotasTest, TokensAreTakenAndGivenBack) {
  const Caller caller = Of(0, 600);
  FORETOKEN_EXPECT_OK(quotas_.Take(caller, 500));
  EXPECT_EQ(RetryAfter(quotas_.Take(caller, 200)), absl::Seconds(10));
  quotas_.GiveBack(caller, 100);
  FORETOKEN_EXPECT_OK(quotas_.Take(caller, 200));
}

TEST_F(CallerQuotasTest, ARefusalTakesNothing) {
  const Caller caller = Of(2, 600);
  FORETOKEN_EXPECT_OK(quotas_.Take(caller, 600));
  EXPECT_FALSE(quotas_.Take(caller, 10).ok());
  now_ += absl::Seconds(1);
  FORETOKEN_EXPECT_OK(quotas_.Take(caller, 10));  // the second request
}

TEST_F(CallerQuotasTest, ARequestLargerThanAMinutesWorthIsServedAndPaidFor) {
  const Caller caller = Of(0, 600);
  FORETOKEN_EXPECT_OK(quotas_.Take(caller, 1800));
  // Two minutes of debt, and another for its own.
  EXPECT_EQ(RetryAfter(quotas_.Take(caller, 10000)), absl::Minutes(3));
  EXPECT_EQ(RetryAfter(quotas_.Take(caller, 10)), absl::Seconds(121));
  now_ += absl::Hours(1);
  FORETOKEN_EXPECT_OK(quotas_.Take(caller, 600));
  EXPECT_FALSE(quotas_.Take(caller, 1).ok());  // it never held more
}

TEST_F(CallerQuotasTest, AChangedQuotaTakesEffectAtOnce) {
  FORETOKEN_EXPECT_OK(quotas_.Take(Of(60, 0), 1));
  for (int i = 0; i < 5; ++i) {
    FORETOKEN_EXPECT_OK(quotas_.Take(Of(5, 0), 1));
  }
  EXPECT_FALSE(quotas_.Take(Of(5, 0), 1).ok());
  FORETOKEN_EXPECT_OK(quotas_.Take(Of(0, 0), 1));
}

TEST_F(CallerQuotasTest, RequestsAreGivenBackToo) {
  const Caller caller = Of(1, 600);
  FORETOKEN_EXPECT_OK(quotas_.Take(caller, 500));
  EXPECT_FALSE(quotas_.Take(caller, 10).ok());
  quotas_.GiveBack(caller, 500, 1);
  FORETOKEN_EXPECT_OK(quotas_.Take(caller, 600));
}

// However many callers come and go.
TEST_F(CallerQuotasTest, ADebtIsNotForgotten) {
  const Caller debtor = Of(0, 600);
  FORETOKEN_EXPECT_OK(quotas_.Take(debtor, 6000));
  const auto crowd = [&](int from) {
    for (int i = from; i < from + 5000; ++i) {
      Caller other = Of(60, 0);
      other.name = "other " + std::to_string(i);
      FORETOKEN_EXPECT_OK(quotas_.Take(other, 1));
    }
  };
  crowd(0);
  now_ += absl::Minutes(5);
  crowd(5000);
  EXPECT_LE(quotas_.accounts(), 5001);  // the first crowd's buckets are full
  // Ten minutes' worth, less the first and what five minutes brought.
  EXPECT_EQ(RetryAfter(quotas_.Take(debtor, 600)), absl::Minutes(5));
}

TEST_F(CallerQuotasTest, CallersHaveQuotasOfTheirOwn) {
  Caller other = Of(1, 0);
  other.name = "other";
  FORETOKEN_EXPECT_OK(quotas_.Take(Of(1, 0), 1));
  EXPECT_FALSE(quotas_.Take(Of(1, 0), 1).ok());
  FORETOKEN_EXPECT_OK(quotas_.Take(other, 1));
}

}  // namespace
}  // namespace foretoken::orchestrator
