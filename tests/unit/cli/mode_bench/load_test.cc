#include "tools/cli/mode_bench/load.h"

#include <atomic>
#include <vector>

#include "absl/synchronization/barrier.h"
#include "common/base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_generator.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/cli/mode_bench/fake_time.h"

namespace foretoken::mode_bench {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using ::foretoken::testing::FakeGenerator;
using OnDelta = FakeGenerator::Take;

std::vector<LoadRequest> MakeWork(size_t count) {
  std::vector<LoadRequest> work(count);
  for (size_t i = 0; i < count; ++i) {
    work[i].prompt = i;
    work[i].request.prompt = {static_cast<TokenId>(i)};
  }
  return work;
}

class LoadTest : public ::testing::Test {
 protected:
  LoadTest() {
    options_.clock = time_.clock();
    options_.pause = [this](absl::Duration by) { time_.Advance(by); };
    options_.on_done = [this] { ++done_; };
  }

  FakeTime time_;
  std::atomic<int> done_{0};
  LoadOptions options_;
};

TEST_F(LoadTest, OneClientSendsTheRequestsOneAfterTheOther) {
  FakeGenerator generator(
      [&](const GenerationRequest&,
          OnDelta on_delta) -> absl::StatusOr<GenerationSummary> {
        time_.Advance(absl::Milliseconds(20));
        GenerationDelta first = Tokens({1});
        first.start = {"numerics", 0, ""};
        FORETOKEN_RETURN_IF_ERROR(on_delta(first));
        time_.Advance(absl::Milliseconds(30));
        FORETOKEN_RETURN_IF_ERROR(on_delta(Tokens({2, 3, 4})));
        GenerationSummary summary;
        summary.rounds = 1;
        summary.accepted = 2;
        return summary;
      });
  const auto work = MakeWork(3);
  const auto result = RunClosedLoop(generator, work, 1, options_);
  ASSERT_THAT(result, testing::IsOk());
  EXPECT_THAT(result->tokens_per_s, DoubleEq(12 / 0.150));
  ASSERT_EQ(result->outcomes.size(), 3u);
  const LoadOutcome& last = result->outcomes[2];
  EXPECT_EQ(last.prompt, 2u);
  EXPECT_THAT(last.tokens, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(last.summary.accepted, 2);
  EXPECT_EQ(last.numerics_fingerprint, "numerics");
  EXPECT_THAT(last.first_token_ms(), DoubleEq(20));
  EXPECT_THAT(last.latency_ms(), DoubleEq(50));
  std::vector<double> gaps;
  last.AppendTokenGaps(gaps);
  EXPECT_THAT(gaps, ElementsAre(DoubleEq(10), DoubleEq(10), DoubleEq(10)));
  EXPECT_EQ(done_, 3);
  EXPECT_EQ(generator.requests()[1].prompt, std::vector<TokenId>{1});
}

TEST_F(LoadTest, AllClientsAreAtWorkAtOnce) {
  constexpr int kClients = 5;
  // Passes only when all clients have come to it.
  auto* barrier = new absl::Barrier(kClients);
  FakeGenerator generator(
      [&](const GenerationRequest&,
          OnDelta on_delta) -> absl::StatusOr<GenerationSummary> {
        if (barrier->Block()) delete barrier;
        FORETOKEN_RETURN_IF_ERROR(on_delta(Tokens({1})));
        return GenerationSummary();
      });
  const auto work = MakeWork(kClients);
  const auto result = RunClosedLoop(generator, work, kClients, options_);
  ASSERT_THAT(result, testing::IsOk());
  EXPECT_EQ(done_, kClients);
}

TEST_F(LoadTest, OnlyTheSteadyPartCounts) {
  // Request 0 ends after 100 ms and its client finds no more work. Request 1
  // goes on alone, which does not count.
  absl::Mutex mu;
  bool both_run = false, first_done = false, looked_for_work = false;
  const auto await = [&](const bool& flag) {
    absl::MutexLock lock(&mu);
    mu.Await(absl::Condition(&flag));
  };
  FakeGenerator generator(
      [&](const GenerationRequest& request,
          OnDelta on_delta) -> absl::StatusOr<GenerationSummary> {
        if (request.prompt[0] == 0) {
          await(both_run);
          time_.Advance(absl::Milliseconds(100));
          FORETOKEN_RETURN_IF_ERROR(on_delta(Tokens({1, 2, 3, 4})));
          return GenerationSummary();
        }
        FORETOKEN_RETURN_IF_ERROR(on_delta(Tokens({5, 6, 7})));
        {
          absl::MutexLock lock(&mu);
          both_run = true;
        }
        await(looked_for_work);
        time_.Advance(absl::Milliseconds(900));
        FORETOKEN_RETURN_IF_ERROR(on_delta(Tokens({8})));
        return GenerationSummary();
      });
  options_.on_done = [&] {
    absl::MutexLock lock(&mu);
    first_done = true;
  };
  // The next to read the clock is the client that looks for work.
  options_.clock = [&] {
    absl::MutexLock lock(&mu);
    looked_for_work = first_done;
    return time_.now();
  };
  const auto work = MakeWork(2);
  const auto result = RunClosedLoop(generator, work, 2, options_);
  ASSERT_THAT(result, testing::IsOk());
  EXPECT_THAT(result->tokens_per_s, DoubleEq(7 / 0.100));
  EXPECT_THAT(result->outcomes[1].tokens, ElementsAre(5, 6, 7, 8));
}

TEST_F(LoadTest, TheFirstErrorEndsAClosedLoop) {
  FakeGenerator generator(
      [&](const GenerationRequest& request,
          OnDelta on_delta) -> absl::StatusOr<GenerationSummary> {
        if (request.prompt[0] == 2) return absl::UnavailableError("gone");
        FORETOKEN_RETURN_IF_ERROR(on_delta(Tokens({1})));
        return GenerationSummary();
      });
  const auto work = MakeWork(100);
  const auto result = RunClosedLoop(generator, work, 1, options_);
  EXPECT_TRUE(absl::IsUnavailable(result.status()));
  EXPECT_THAT(std::string(result.status().message()),
              HasSubstr("prompt 3: gone"));
  EXPECT_EQ(generator.requests().size(), 3u);
}

TEST_F(LoadTest, AnErrorCancelsTheRequestsThatAreRunning) {
  FakeGenerator generator(
      [&](const GenerationRequest& request,
          OnDelta on_delta) -> absl::StatusOr<GenerationSummary> {
        if (request.prompt[0] == 1) return absl::InternalError("broken");
        while (true) {
          FORETOKEN_RETURN_IF_ERROR(on_delta(Tokens({1})));
        }
      });
  const auto work = MakeWork(2);
  const auto result = RunClosedLoop(generator, work, 2, options_);
  EXPECT_THAT(std::string(result.status().message()),
              HasSubstr("prompt 2: broken"));
}

TEST_F(LoadTest, AnAnswerWithoutTokensIsAnError) {
  FakeGenerator generator(
      [](const GenerationRequest&, OnDelta) { return GenerationSummary(); });
  const auto work = MakeWork(1);
  EXPECT_THAT(
      std::string(
          RunClosedLoop(generator, work, 1, options_).status().message()),
      HasSubstr("without tokens"));
}

TEST_F(LoadTest, AnOpenLoopSendsRequestsAtTheirTimes) {
  FakeGenerator generator(
      [&](const GenerationRequest&,
          OnDelta on_delta) -> absl::StatusOr<GenerationSummary> {
        FORETOKEN_RETURN_IF_ERROR(on_delta(Tokens({1, 2})));
        return GenerationSummary();
      });
  auto work = MakeWork(3);
  work[1].at = absl::Milliseconds(250);
  work[2].at = absl::Milliseconds(1000);
  const absl::Time start = time_.now();
  const auto result = RunOpenLoop(generator, work, options_);
  ASSERT_THAT(result, testing::IsOk());
  for (size_t i = 0; i < work.size(); ++i) {
    const LoadOutcome& outcome = result->outcomes[i];
    EXPECT_EQ(outcome.start, start + work[i].at);
    EXPECT_GE(outcome.first_token_ms(), 0);
    EXPECT_FALSE(outcome.refused);
  }
  EXPECT_EQ(time_.now() - start, absl::Milliseconds(1000));
  EXPECT_THAT(result->tokens_per_s, DoubleEq(6));
}

TEST_F(LoadTest, AnOpenLoopCountsRefusals) {
  FakeGenerator generator(
      [&](const GenerationRequest& request,
          OnDelta on_delta) -> absl::StatusOr<GenerationSummary> {
        if (request.prompt[0] == 0) return absl::ResourceExhaustedError("full");
        FORETOKEN_RETURN_IF_ERROR(on_delta(Tokens({1})));
        return GenerationSummary();
      });
  const auto work = MakeWork(2);
  const auto result = RunOpenLoop(generator, work, options_);
  ASSERT_THAT(result, testing::IsOk());
  EXPECT_TRUE(result->outcomes[0].refused);
  EXPECT_THAT(result->outcomes[0].tokens, IsEmpty());
  EXPECT_FALSE(result->outcomes[1].refused);
  EXPECT_EQ(done_, 2);
}

TEST_F(LoadTest, AnOpenLoopIsBounded) {
  // Requests that go on until they are told to end.
  FakeGenerator generator(
      [&](const GenerationRequest&,
          OnDelta on_delta) -> absl::StatusOr<GenerationSummary> {
        while (true) {
          FORETOKEN_RETURN_IF_ERROR(on_delta(GenerationDelta()));
        }
      });
  options_.max_in_flight = 2;
  const auto work = MakeWork(5);
  const auto result = RunOpenLoop(generator, work, options_);
  EXPECT_TRUE(absl::IsResourceExhausted(result.status()));
  EXPECT_THAT(std::string(result.status().message()),
              HasSubstr("2 requests are running and the next is due"));
  EXPECT_LE(generator.requests().size(), 2u);
}

}  // namespace
}  // namespace foretoken::mode_bench
