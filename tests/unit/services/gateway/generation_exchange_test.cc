// One request to generate between a fake client and a fake generator, with an
// answer that records what it is told.
#include "common/base/json.h"
#include "services/gateway/core/generation_exchange.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/retry_after.h"
#include "common/generation/generator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/gateway/core/generation_fields.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/services/gateway/fakes.h"

namespace foretoken::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Writes what it is told in words, into a stream at once and into a body at the
// end. A stream with repeated fields keeps its output, as one of responses.
class ToyAnswer final : public Answer {
 public:
  explicit ToyAnswer(const ApiRequest& request)
      : stream_(request.stream), keeps_(!request.repeated.empty()) {}

  void OnDelta(int64_t choice, const GenerationDelta& delta,
               std::string& out) override {
    if (keeps_) kept_ += static_cast<int64_t>(delta.text.size());
    Say(absl::StrCat(choice, ":", delta.text, ";"), out);
  }
  void OnResult(int64_t choice, const GenerationSummary&,
                std::string& out) override {
    Say(absl::StrCat(choice, " done;"), out);
  }
  void Finish(const AnswerTimes& times, std::string& out) override {
    absl::StrAppend(&out, body_, "first ",
                    absl::ToInt64Seconds(times.first_token), " total ",
                    absl::ToInt64Seconds(times.total));
  }
  void Fail(const ApiError& error, std::string& out) override {
    absl::StrAppend(&out, "failed ", error.http_status);
  }
  int64_t kept_bytes() const override { return kept_; }

 private:
  void Say(const std::string& words, std::string& out) {
    (stream_ ? out : body_) += words;
  }

  const bool stream_, keeps_;
  int64_t kept_ = 0;
  std::string body_;
};

class Statuses final : public GatewayObserver {
 public:
  void OnEnd(Route, int status, absl::Duration latency) override {
    statuses.push_back(status);
    latencies.push_back(latency);
  }
  void OnDelta() override { ++deltas; }
  void OnPause() override { ++pauses; }

  std::vector<int> statuses;
  std::vector<absl::Duration> latencies;
  int deltas = 0;
  int pauses = 0;
};

// Runs `meanwhile` on a thread of its own that begins inside Start, before the
// exchange has the call.
class EagerGenerator final : public Generator {
 public:
  ~EagerGenerator() override {
    if (thread_.joinable()) thread_.join();
  }

  absl::StatusOr<GeneratorInfo> Info(absl::Time) override {
    return absl::UnimplementedError("not asked for");
  }
  bool Ready() override { return true; }
  std::shared_ptr<GenerationCall> Start(
      GenerationRequest, std::shared_ptr<GenerationListener> heard) override {
    listener = std::move(heard);
    thread_ = std::thread([this] {
      begun_.Notify();
      meanwhile();
    });
    begun_.WaitForNotification();
    return call;
  }
  std::shared_ptr<PendingCall> Tokenize(const Caller&, std::string, bool,
                                        absl::Time, OnTokens) override {
    return nullptr;
  }
  std::shared_ptr<PendingCall> Detokenize(const Caller&, std::vector<TokenId>,
                                          absl::Time, OnText) override {
    return nullptr;
  }
  // Waits for `meanwhile`.
  void Join() { thread_.join(); }

  std::function<void()> meanwhile;
  std::shared_ptr<GenerationListener> listener;
  const std::shared_ptr<FakeCall> call = std::make_shared<FakeCall>();

 private:
  absl::Notification begun_;
  std::thread thread_;
};

class ExchangeTest : public ::testing::Test {
 protected:
  ExchangeTest() {
    request_.prompts = {"ab"};
    request_.stream = true;
  }

  void Start(Generator& generator) {
    const int64_t bytes = GenerationExchange::Bytes(request_, 10);
    auto memory = budget_.Take("client", bytes);
    FORETOKEN_ASSERT_OK(memory);
    GenerationExchange::Start(
        request_, *std::move(memory),
        [](const ApiRequest& request,
           AnswerOptions) -> std::unique_ptr<Answer> {
          return std::make_unique<ToyAnswer>(request);
        },
        {}, {{"X-Request-Id", "id"}}, generator, http_,
        std::make_unique<ObservedRequest>(observer_, Route::kCompletions, now_),
        timers_, [this] { return now_; });
  }
  void Start() { Start(generator_); }
  FakeCall& call(size_t i = 0) { return *generator_.calls.at(i); }
  void HasRoom() {
    http_->room = true;
    http_->observer.lock()->OnRoom();
  }
  void Pass(int seconds) { now_ += absl::Seconds(seconds); }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  ApiRequest request_;
  ByteBudget budget_{int64_t{4} << 20};
  Statuses observer_;
  FakeGenerator generator_;
  RetryTimers timers_;
  const std::shared_ptr<FakeExchange> http_ = std::make_shared<FakeExchange>();
};

TEST_F(ExchangeTest, AStreamBeginsWithTheFirstOutput) {
  Start();
  EXPECT_EQ(http_->streams, 0);
  EXPECT_TRUE(call().Write("x"));
  EXPECT_EQ(http_->streams, 1);
  EXPECT_EQ(http_->response.status, 200);
  EXPECT_EQ(http_->Header("X-Request-Id"), "id");
  EXPECT_EQ(http_->Header("Cache-Control"), "no-store");
  EXPECT_EQ(http_->response.body, "0:x;");
  EXPECT_TRUE(call().Write("y"));
  call().Finish();
  EXPECT_EQ(http_->streams, 1);
  EXPECT_EQ(http_->ends, 1);
  EXPECT_EQ(http_->response.body, "0:x;0:y;0 done;first 0 total 0");
  EXPECT_THAT(observer_.statuses, ElementsAre(200));
  EXPECT_EQ(observer_.deltas, 2);
}

TEST_F(ExchangeTest, ABodyIsSentOnceAllChoicesHaveEnded) {
  request_.stream = false;
  request_.n = 2;
  Start();
  Pass(3);
  EXPECT_TRUE(call(1).Write("y"));
  Pass(1);
  EXPECT_TRUE(call(0).Write("x"));
  call(0).Finish();
  EXPECT_EQ(http_->ends, 0);
  EXPECT_THAT(observer_.statuses, IsEmpty());
  Pass(1);
  call(1).Finish();
  EXPECT_EQ(http_->streams, 0);
  EXPECT_EQ(http_->ends, 1);
  EXPECT_EQ(http_->Header("X-Request-Id"), "id");
  // Times are of the request: of its first output, whichever choice has it.
  EXPECT_EQ(http_->response.body, "1:y;0:x;0 done;1 done;first 3 total 5");
  EXPECT_THAT(observer_.statuses, ElementsAre(200));
  EXPECT_THAT(observer_.latencies, ElementsAre(absl::Seconds(5)));
}

TEST_F(ExchangeTest, EveryChoiceHasTheConstraint) {
  const int64_t bytes = GenerationExchange::Bytes(request_, 10);
  request_.n = 2;
  request_.generation.constraint = {
      Constraint::Kind::kRegex, std::string(1000, 'a'), {}};
  EXPECT_GE(GenerationExchange::Bytes(request_, 10), bytes + 5 * 1000);
  Start();
  for (const size_t choice : {0, 1}) {
    EXPECT_EQ(call(choice).request.constraint, request_.generation.constraint);
  }
}

// The orchestrator has one field for all of the gateway's.
TEST_F(ExchangeTest, WhatIsWrongWithAConstraintIsSaidByItsField) {
  request_.generation.constraint = {Constraint::Kind::kJsonSchema, "{}", {}};
  request_.constraint_field = "response_format.json_schema.schema";
  Start();
  call().End(absl::InvalidArgumentError("constraint: /a: not: no such word"));
  const Json error = http_->Body()["error"];
  EXPECT_EQ(http_->response.status, 400);
  EXPECT_EQ(error["param"], "response_format.json_schema.schema");
  EXPECT_EQ(error["message"],
            "response_format.json_schema.schema: /a: not: no such word");
  EXPECT_EQ(error["code"], "invalid_value");
}

TEST_F(ExchangeTest, WithoutOutputTheFirstTokenCameAtTheEnd) {
  Start();
  Pass(2);
  call().End(absl::OkStatus());
  EXPECT_EQ(http_->response.body, "first 2 total 2");
}

TEST_F(ExchangeTest, AFailureBeforeOutputIsTheStatusAndCancelsTheOthers) {
  request_.n = 3;
  Start();
  call(1).End(WithRetryAfter(absl::ResourceExhaustedError("the queue is full"),
                             absl::Milliseconds(1500)));
  EXPECT_EQ(http_->streams, 0);
  EXPECT_EQ(http_->ends, 1);
  EXPECT_EQ(http_->response.status, 429);
  // Rounded up: an earlier attempt would be refused again.
  EXPECT_EQ(http_->Header("Retry-After"), "2");
  EXPECT_EQ(http_->Header("Retry-After-Ms"), "1500");
  EXPECT_EQ(call(0).cancelled, 1);
  EXPECT_EQ(call(1).cancelled, 0);
  EXPECT_EQ(call(2).cancelled, 1);
  // What the others still say is neither sent nor counted.
  EXPECT_TRUE(call(0).Write("late"));
  call(0).Finish();
  call(2).End(absl::CancelledError("cancelled"));
  EXPECT_THAT(http_->response.body, Not(HasSubstr("late")));
  EXPECT_EQ(http_->ends, 1);
  EXPECT_THAT(observer_.statuses, ElementsAre(429));
  EXPECT_EQ(observer_.deltas, 0);
}

TEST_F(ExchangeTest, AFailureAfterOutputEndsTheStream) {
  request_.n = 2;
  Start();
  call(0).Write("x");
  call(1).End(absl::InternalError("broken"));
  EXPECT_EQ(http_->response.status, 200);
  EXPECT_EQ(http_->response.body, "0:x;failed 500");
  EXPECT_EQ(http_->ends, 1);
  EXPECT_EQ(call(0).cancelled, 1);
  EXPECT_THAT(observer_.statuses, ElementsAre(500));
}

TEST_F(ExchangeTest, ChoicesFollowAsOthersEndButNotAfterAFailure) {
  request_.n = GenerationExchange::kAtOnce + 5;
  Start();
  EXPECT_THAT(generator_.calls, SizeIs(GenerationExchange::kAtOnce));
  call(7).Finish();
  call(3).Finish();
  EXPECT_THAT(generator_.calls, SizeIs(GenerationExchange::kAtOnce + 2));
  call(0).End(absl::InternalError("broken"));
  EXPECT_THAT(generator_.calls, SizeIs(GenerationExchange::kAtOnce + 2));
}

TEST_F(ExchangeTest, EveryChoiceHasItsPromptSeedAndName) {
  request_.prompts = {"ab", std::vector<TokenId>{4, 5}};
  request_.n = 2;
  request_.generation.sampling.seed = 7;
  request_.generation.request_id = std::string(kMaxRequestIdBytes, 'r');
  Start();
  ASSERT_THAT(generator_.calls, SizeIs(4));
  for (size_t i = 0; i < 4; ++i) {
    const GenerationRequest& request = call(i).request;
    EXPECT_EQ(request.text.value_or(""), i < 2 ? "ab" : "");
    EXPECT_EQ(request.prompt,
              i < 2 ? std::vector<TokenId>() : std::vector<TokenId>({4, 5}));
    EXPECT_EQ(request.sampling.seed,
              SeedOfChoice(7, static_cast<int64_t>(i) % 2));
    EXPECT_EQ(request.request_id,
              absl::StrCat(std::string(kMaxRequestIdBytes - 2, 'r'), "-", i));
  }
}

TEST_F(ExchangeTest, OneChoiceKeepsTheNameOfTheRequest) {
  request_.generation.request_id = "name";
  Start();
  EXPECT_EQ(call().request.request_id, "name");
}

TEST_F(ExchangeTest, ASlowClientPausesTheChoicesThatWriteUntilThereIsRoom) {
  request_.n = 2;
  Start();
  http_->room = false;
  EXPECT_FALSE(call(0).Write("x"));
  EXPECT_EQ(observer_.pauses, 1);
  EXPECT_EQ(call(0).resumed, 0);
  HasRoom();
  EXPECT_EQ(call(0).resumed, 1);
  EXPECT_EQ(call(1).resumed, 0);
  HasRoom();
  EXPECT_EQ(call(0).resumed, 1);
}

TEST_F(ExchangeTest, AChoiceThatPausesWhileItIsStartedWaitsForRoom) {
  EagerGenerator generator;
  http_->room = false;
  generator.meanwhile = [&] {
    GenerationDelta delta;
    delta.text = "x";
    EXPECT_FALSE(generator.listener->OnDelta(delta));
  };
  Start(generator);
  generator.Join();
  EXPECT_EQ(generator.call->resumed, 0);
  HasRoom();
  EXPECT_EQ(generator.call->resumed, 1);
  generator.listener->OnEnd(absl::OkStatus());
}

TEST_F(ExchangeTest, RoomWhileAChoiceIsStartedResumesIt) {
  EagerGenerator generator;
  http_->room = false;
  generator.meanwhile = [&] {
    GenerationDelta delta;
    delta.text = "x";
    EXPECT_FALSE(generator.listener->OnDelta(delta));
    HasRoom();
  };
  Start(generator);
  generator.Join();
  EXPECT_EQ(generator.call->resumed, 1);
  generator.listener->OnEnd(absl::OkStatus());
}

TEST_F(ExchangeTest, AClientThatLeavesWhileAChoiceIsStartedCancelsIt) {
  EagerGenerator generator;
  generator.meanwhile = [&] { http_->observer.lock()->OnGone(); };
  Start(generator);
  generator.Join();
  EXPECT_EQ(generator.call->cancelled, 1);
  EXPECT_THAT(observer_.statuses, ElementsAre(kClientGone));
  generator.listener->OnEnd(absl::CancelledError("cancelled"));
  EXPECT_EQ(http_->ends, 0);
}

TEST_F(ExchangeTest, AClientThatLeavesCancelsAllChoicesOnce) {
  request_.n = 2;
  Start();
  call(0).Write("x");
  const auto observer = http_->observer.lock();
  observer->OnGone();
  observer->OnGone();
  EXPECT_EQ(call(0).cancelled, 1);
  EXPECT_EQ(call(1).cancelled, 1);
  EXPECT_TRUE(call(1).Write("y"));
  call(0).End(absl::CancelledError("cancelled"));
  call(1).End(absl::CancelledError("cancelled"));
  EXPECT_EQ(http_->response.body, "0:x;");
  EXPECT_EQ(http_->ends, 0);
  EXPECT_THAT(observer_.statuses, ElementsAre(kClientGone));
}

TEST_F(ExchangeTest, ForAClientThatIsGoneNothingStarts) {
  http_->left = true;
  Start();
  EXPECT_THAT(generator_.calls, IsEmpty());
  EXPECT_THAT(observer_.statuses, ElementsAre(kClientGone));
}

TEST_F(ExchangeTest, ItsMemoryIsFreeOnceItHasEnded) {
  Start();
  EXPECT_GT(budget_.used(), 0);
  call().Write("x");
  call().Finish();
  EXPECT_EQ(budget_.used(), 0);
}

TEST_F(ExchangeTest, OutputThatIsKeptIsPaidForAsItGrows) {
  request_.repeated = R"(,"a":1)";
  Start();
  const int64_t before = budget_.used();
  call().Write("short");
  EXPECT_EQ(budget_.used(), before);  // there is room for it from the first
  call().Write(std::string(20'000, 'x'));
  EXPECT_GE(budget_.used(), before + 20'000);
  // More than it holds is asked for, so that a long answer asks seldom.
  call().Write("short");
  const int64_t grown = budget_.used();
  call().Write(std::string(10'000, 'x'));
  EXPECT_EQ(budget_.used(), grown);
  call().Finish();
  EXPECT_EQ(budget_.used(), 0);
}

TEST_F(ExchangeTest, OutputThatCannotBeKeptFailsTheRequest) {
  request_.repeated = R"(,"a":1)";
  request_.n = 2;
  Start();
  EXPECT_TRUE(call(0).Write(std::string(4'000'000, 'x')));
  EXPECT_THAT(http_->response.body, HasSubstr("failed 429"));
  EXPECT_EQ(http_->ends, 1);
  EXPECT_EQ(call(0).cancelled, 1);
  EXPECT_EQ(call(1).cancelled, 1);
  EXPECT_THAT(observer_.statuses, ElementsAre(429));
}

TEST_F(ExchangeTest, ABodyNeedsRoomForItsTokensAndAStreamDoesNot) {
  request_.n = 3;
  const auto of_tokens = [&] {
    return GenerationExchange::Bytes(request_, 1000) -
           GenerationExchange::Bytes(request_, 0);
  };
  EXPECT_EQ(of_tokens(), 0);
  request_.stream = false;
  const int64_t text = of_tokens();
  EXPECT_GE(text, 3 * 1000 * 4);
  request_.want_tokens = true;
  EXPECT_GT(of_tokens(), text);
  request_.want_tokens = false;
  request_.logprobs = true;
  request_.generation.sampling.logprobs = 2;
  const int64_t few = of_tokens();
  EXPECT_GT(few, text);
  request_.generation.sampling.logprobs = 5;
  // The token's own and two others, or five.
  EXPECT_EQ(of_tokens() - text, 2 * (few - text));
}

TEST(ErrorResponseTest, ARefusedKeySaysWhatIsWanted) {
  const HttpResponse response =
      ErrorResponse(absl::UnauthenticatedError("no key"), {{"X-A", "1"}});
  EXPECT_EQ(response.status, 401);
  EXPECT_THAT(response.headers,
              ElementsAre(std::pair("X-A", "1"),
                          std::pair("WWW-Authenticate", "Bearer")));
}

}  // namespace
}  // namespace foretoken::gateway
