#include "services/orchestrator/core/drafters/circuit_breaker.h"

#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::orchestrator {
namespace {

using State = CircuitBreaker::State;
using ::testing::ElementsAre;

class CircuitBreakerTest : public ::testing::Test {
 protected:
  CircuitBreakerTest()
      : breaker_(
            {.failures_in_a_row = 3,
             .failure_share = 0.5,
             .window = 10,
             .silence = absl::Seconds(2),
             .first_backoff = absl::Seconds(1),
             .max_backoff = absl::Seconds(4),
             .jitter = 0.5},
            [this] { return now_; }, [this] { return random_; },
            [this](State state) { states_.push_back(state); }) {}

  void Fail(int times) {
    for (int i = 0; i < times; ++i) FailNow();
  }

  // Failure of the call that was allowed last.
  void FailNow() { breaker_.Failure(epoch_); }
  bool Allowed() {
    const std::optional<int64_t> epoch = breaker_.Allow();
    epoch_ = epoch.value_or(epoch_);
    return epoch.has_value();
  }

  int64_t epoch_ = 0;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  double random_ = 0.0;
  std::vector<State> states_;
  CircuitBreaker breaker_;
};

TEST_F(CircuitBreakerTest, FailuresInARowOpenIt) {
  Fail(2);
  breaker_.Success();
  Fail(2);
  EXPECT_TRUE(Allowed());
  Fail(1);
  EXPECT_FALSE(Allowed());
  EXPECT_EQ(breaker_.state(), State::kOpen);
}

TEST_F(CircuitBreakerTest, ALargeShareOfFailuresOpensItToo) {
  int outcomes = 0;
  while (breaker_.state() == State::kClosed && outcomes < 100) {
    FailNow();
    breaker_.Success();
    outcomes += 2;
  }
  EXPECT_GE(outcomes, 10);
  EXPECT_LE(outcomes, 14);
}

TEST_F(CircuitBreakerTest, ASmallShareNeverDoes) {
  for (int i = 0; i < 300; ++i) {
    if (i % 3 == 0) {
      FailNow();
    } else {
      breaker_.Success();
    }
  }
  EXPECT_EQ(breaker_.state(), State::kClosed);
}

TEST_F(CircuitBreakerTest, OneProbeAtATimeAndAGoodOneClosesIt) {
  Fail(3);
  now_ += absl::Milliseconds(999);
  EXPECT_FALSE(Allowed());
  now_ += absl::Milliseconds(1);
  EXPECT_TRUE(Allowed());
  EXPECT_FALSE(Allowed()) << "a second probe";
  breaker_.Success();
  EXPECT_TRUE(Allowed());
  EXPECT_THAT(states_,
              ElementsAre(State::kOpen, State::kHalfOpen, State::kClosed));
  // What came before is forgotten.
  Fail(2);
  EXPECT_EQ(breaker_.state(), State::kClosed);
}

TEST_F(CircuitBreakerTest, BackOffsDoubleUpToTheBoundAndStartAgain) {
  Fail(3);
  for (const int seconds : {1, 2, 4, 4}) {
    now_ += absl::Seconds(seconds) - absl::Milliseconds(1);
    EXPECT_FALSE(Allowed()) << seconds;
    now_ += absl::Milliseconds(1);
    EXPECT_TRUE(Allowed()) << seconds;
    FailNow();
  }
  now_ += absl::Seconds(4);
  EXPECT_TRUE(Allowed());
  breaker_.Success();
  Fail(3);
  now_ += absl::Seconds(1);
  EXPECT_TRUE(Allowed());
}

TEST_F(CircuitBreakerTest, JitterShortensABackOff) {
  random_ = 0.5;
  Fail(3);
  now_ += absl::Milliseconds(749);
  EXPECT_FALSE(Allowed());
  now_ += absl::Milliseconds(1);
  EXPECT_TRUE(Allowed());
}

TEST_F(CircuitBreakerTest, AProbeThatIsNeverHeardOfHasFailedAndIsRepeated) {
  Fail(3);
  for (const int seconds : {1, 1, 2, 4, 4}) {
    now_ += absl::Seconds(seconds) - absl::Milliseconds(1);
    EXPECT_FALSE(Allowed()) << seconds;
    now_ += absl::Milliseconds(1);
    EXPECT_TRUE(Allowed()) << seconds;
    breaker_.Late();  // the probe's end is still open
  }
  breaker_.Success();
  EXPECT_EQ(breaker_.state(), State::kClosed);
}

// A busy draft worker: most rounds wait in vain, and answers come all the same.
TEST_F(CircuitBreakerTest, LateAsksDoNotOpenItWhileAnythingIsHeard) {
  for (int i = 0; i < 1000; ++i) {
    breaker_.Late();
    now_ += absl::Milliseconds(100);
    if (i % 19 == 0) breaker_.Success();
  }
  EXPECT_EQ(breaker_.state(), State::kClosed);
}

TEST_F(CircuitBreakerTest, LateAsksInSilenceOpenIt) {
  const absl::Time start = now_;
  while (breaker_.state() == State::kClosed &&
         now_ < start + absl::Minutes(1)) {
    breaker_.Late();
    now_ += absl::Milliseconds(100);
  }
  EXPECT_GE(now_ - start, absl::Seconds(2));
  EXPECT_LE(now_ - start, absl::Seconds(2.5));
  // Once it is back it has all its time again.
  now_ += absl::Seconds(1);
  EXPECT_TRUE(Allowed());
  breaker_.Success();
  for (int i = 0; i < 10; ++i) breaker_.Late();
  EXPECT_EQ(breaker_.state(), State::kClosed);
}

TEST_F(CircuitBreakerTest, LongWaitsForAnswersAreSilence) {
  // The first late answer begins it; then three failures open it.
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(breaker_.state(), State::kClosed) << i;
    now_ += absl::Seconds(10);
    breaker_.Late(/*waited=*/absl::Seconds(10));
  }
  EXPECT_EQ(breaker_.state(), State::kOpen);
}

TEST_F(CircuitBreakerTest, APauseWithoutAsksIsNoSilence) {
  for (int i = 0; i < 100; ++i) {
    breaker_.Late();
    now_ += absl::Seconds(3);
  }
  EXPECT_EQ(breaker_.state(), State::kClosed);
}

TEST_F(CircuitBreakerTest, LateNewsOfOldAsksDoesNotCloseAnOpenOne) {
  Fail(3);
  breaker_.Success();
  FailNow();
  EXPECT_EQ(breaker_.state(), State::kOpen);
  now_ += absl::Seconds(1);
  EXPECT_TRUE(Allowed()) << "the old failure made the back-off longer";
}

// Sixteen streams broke when the service died; most are looked at only when the
// first request is already trying it again.
TEST_F(CircuitBreakerTest, StreamsFromBeforeFailNoProbe) {
  Fail(3);
  const int64_t before = 0;
  now_ += absl::Seconds(1);
  ASSERT_TRUE(Allowed());
  breaker_.Failure(before);
  EXPECT_EQ(breaker_.state(), State::kHalfOpen);
  breaker_.Success();
  EXPECT_EQ(breaker_.state(), State::kClosed);
  for (int i = 0; i < 100; ++i) breaker_.Failure(before);
  EXPECT_EQ(breaker_.state(), State::kClosed);
  // The one that was allowed last has the last word.
  Fail(3);
  now_ += absl::Seconds(1);
  ASSERT_TRUE(Allowed());
  const int64_t given_up = epoch_;
  now_ += absl::Seconds(1);
  ASSERT_TRUE(Allowed()) << "nothing was heard of the first";
  breaker_.Failure(given_up);
  EXPECT_EQ(breaker_.state(), State::kHalfOpen);
  FailNow();
  EXPECT_EQ(breaker_.state(), State::kOpen);
}

TEST_F(CircuitBreakerTest, NothingIsTriedAheadWhileItIsNotClosed) {
  EXPECT_EQ(breaker_.AllowAhead(), 0);
  Fail(3);
  now_ += absl::Seconds(1);
  EXPECT_EQ(breaker_.AllowAhead(), std::nullopt);
  EXPECT_TRUE(Allowed()) << "the probe was not taken";
  EXPECT_EQ(breaker_.AllowAhead(), std::nullopt);
  breaker_.Success();
  EXPECT_EQ(breaker_.AllowAhead(), 1);
}

TEST(CircuitBreakerThreadsTest, ManyRequestsShareOne) {
  CircuitBreaker breaker({}, absl::Now, [] { return 0.5; });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&breaker, t] {
      for (int i = 0; i < 2000; ++i) {
        const std::optional<int64_t> epoch = breaker.Allow();
        if (!epoch.has_value()) continue;
        if ((i + t) % 16 == 0) {
          breaker.Failure(*epoch);
        } else {
          breaker.Success();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(breaker.state(), CircuitBreaker::State::kClosed);
}

}  // namespace
}  // namespace foretoken::orchestrator
