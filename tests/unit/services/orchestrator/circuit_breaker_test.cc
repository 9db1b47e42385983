#include "services/orchestrator/core/circuit_breaker.h"

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
    for (int i = 0; i < times; ++i) breaker_.Failure();
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  double random_ = 0.0;
  std::vector<State> states_;
  CircuitBreaker breaker_;
};

TEST_F(CircuitBreakerTest, FailuresInARowOpenIt) {
  Fail(2);
  breaker_.Success();
  Fail(2);
  EXPECT_TRUE(breaker_.Allow());
  Fail(1);
  EXPECT_FALSE(breaker_.Allow());
  EXPECT_EQ(breaker_.state(), State::kOpen);
}

TEST_F(CircuitBreakerTest, ALargeShareOfFailuresOpensItToo) {
  int outcomes = 0;
  while (breaker_.state() == State::kClosed && outcomes < 100) {
    breaker_.Failure();
    breaker_.Success();
    outcomes += 2;
  }
  EXPECT_GE(outcomes, 10);
  EXPECT_LE(outcomes, 14);
}

TEST_F(CircuitBreakerTest, ASmallShareNeverDoes) {
  for (int i = 0; i < 300; ++i) {
    if (i % 3 == 0) {
      breaker_.Failure();
    } else {
      breaker_.Success();
    }
  }
  EXPECT_EQ(breaker_.state(), State::kClosed);
}

TEST_F(CircuitBreakerTest, OneProbeAtATimeAndAGoodOneClosesIt) {
  Fail(3);
  now_ += absl::Milliseconds(999);
  EXPECT_FALSE(breaker_.Allow());
  now_ += absl::Milliseconds(1);
  EXPECT_TRUE(breaker_.Allow());
  EXPECT_FALSE(breaker_.Allow()) << "a second probe";
  breaker_.Success();
  EXPECT_TRUE(breaker_.Allow());
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
    EXPECT_FALSE(breaker_.Allow()) << seconds;
    now_ += absl::Milliseconds(1);
    EXPECT_TRUE(breaker_.Allow()) << seconds;
    breaker_.Failure();
  }
  now_ += absl::Seconds(4);
  EXPECT_TRUE(breaker_.Allow());
  breaker_.Success();
  Fail(3);
  now_ += absl::Seconds(1);
  EXPECT_TRUE(breaker_.Allow());
}

TEST_F(CircuitBreakerTest, JitterShortensABackOff) {
  random_ = 0.5;
  Fail(3);
  now_ += absl::Milliseconds(749);
  EXPECT_FALSE(breaker_.Allow());
  now_ += absl::Milliseconds(1);
  EXPECT_TRUE(breaker_.Allow());
}

TEST_F(CircuitBreakerTest, AProbeThatIsNeverHeardOfHasFailedAndIsRepeated) {
  Fail(3);
  for (const int seconds : {1, 1, 2, 4, 4}) {
    now_ += absl::Seconds(seconds) - absl::Milliseconds(1);
    EXPECT_FALSE(breaker_.Allow()) << seconds;
    now_ += absl::Milliseconds(1);
    EXPECT_TRUE(breaker_.Allow()) << seconds;
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
  EXPECT_TRUE(breaker_.Allow());
  breaker_.Success();
  for (int i = 0; i < 10; ++i) breaker_.Late();
  EXPECT_EQ(breaker_.state(), State::kClosed);
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
  breaker_.Failure();
  EXPECT_EQ(breaker_.state(), State::kOpen);
  now_ += absl::Seconds(1);
  EXPECT_TRUE(breaker_.Allow()) << "the old failure made the back-off longer";
}

TEST(CircuitBreakerThreadsTest, ManyRequestsShareOne) {
  CircuitBreaker breaker({}, absl::Now, [] { return 0.5; });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&breaker, t] {
      for (int i = 0; i < 2000; ++i) {
        if (!breaker.Allow()) continue;
        if ((i + t) % 16 == 0) {
          breaker.Failure();
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
