#include "services/verifier/core/engine_verify_sessions.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_backend.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/services/verifier/engine_fixture.h"

namespace foretoken::verifier {
namespace {

using ::foretoken::testing::Eventually;
using ::foretoken::testing::FakeBackend;
using ::foretoken::testing::FakeBackendOptions;
using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);

// Remembers what it is told, and lets a test wait for it.
class Sink final : public VerifyListener {
 public:
  void OnOpened(const std::string&) override {
    opened.Notify();
    if (hold_engine != nullptr) hold_engine->WaitForNotification();
  }
  void OnPrefilled(PrefillResult result) override {
    absl::MutexLock lock(&mu_);
    for (const SampledToken& token : result.tokens) {
      tokens_.push_back(token.token);
    }
    ++answers_;
  }
  void OnRound(RoundResult result) override {
    absl::MutexLock lock(&mu_);
    for (const SampledToken& token : result.tokens) {
      tokens_.push_back(token.token);
    }
    ++answers_;
  }
  void OnFailed(absl::Status status) override {
    session.reset();
    absl::MutexLock lock(&mu_);
    EXPECT_FALSE(failed_) << "OnFailed came twice";
    failed_ = true;
    failure_ = std::move(status);
  }

  // The tokens once `answers` answers have come.
  std::vector<TokenId> AwaitAnswers(int answers) {
    absl::MutexLock lock(&mu_);
    const auto done = [&] { return answers_ >= answers || failed_; };
    FORETOKEN_CHECK(mu_.AwaitWithTimeout(absl::Condition(&done), kPatience));
    return tokens_;
  }
  absl::Status AwaitFailure() {
    absl::MutexLock lock(&mu_);
    FORETOKEN_CHECK(mu_.AwaitWithTimeout(absl::Condition(&failed_), kPatience));
    return failure_;
  }
  bool failed() {
    absl::MutexLock lock(&mu_);
    return failed_;
  }

  absl::Notification opened;
  absl::Notification* hold_engine = nullptr;  // OnOpened waits for it
  std::unique_ptr<VerifySession> session;     // closed by OnFailed

 private:
  absl::Mutex mu_;
  std::vector<TokenId> tokens_;
  int answers_ = 0;
  bool failed_ = false;
  absl::Status failure_;
};

std::unique_ptr<EngineVerifySessions> Start(EngineVerifyOptions options = {},
                                            VerifyEngineOptions engine = {}) {
  return std::make_unique<EngineVerifySessions>(
      options,
      std::make_unique<VerifyEngine>(
          engine, std::make_unique<FakeBackend>(FakeBackendOptions())),
      nullptr);
}

RoundRequest PlainRound(int64_t length) {
  RoundRequest round;
  round.length = length;
  return round;
}

// Nothing is held any more.
bool Empty(EngineVerifySessions& verifier) {
  return Eventually([&] {
    const VerifySnapshot now = verifier.loop().snapshot();
    return now.sessions == 0 && now.queue_length == 0 &&
           now.kv.pages_free == now.kv.pages_total;
  });
}

TEST(EngineVerifySessionsTest, RunsASessionFromOpenToClose) {
  const auto verifier = Start();
  const SessionRequest request = Request({1, 2, 3}, 6);
  auto sink = std::make_shared<Sink>();
  const auto session = verifier->loop().Open(request, sink);
  FORETOKEN_ASSERT_OK(session);
  for (int answers = 1; answers < 6; ++answers) {
    sink->AwaitAnswers(answers);
    FORETOKEN_ASSERT_OK((*session)->Ask(PlainRound(3 + answers)));
  }
  EXPECT_EQ(sink->AwaitAnswers(6), Decode(request, 50));
  (*session)->Close();
  EXPECT_TRUE(Empty(*verifier));
  EXPECT_EQ(verifier->loop().snapshot().totals.rounds, 5);
  // Rounds and closes of a closed session are ignored.
  FORETOKEN_EXPECT_OK((*session)->Ask(PlainRound(9)));
  (*session)->Close();
  EXPECT_TRUE(Empty(*verifier));
  EXPECT_FALSE(sink->failed());
}

TEST(EngineVerifySessionsTest,
     AFullQueueRefusesNewcomersAndStillTakesRoundsAndCloses) {
  EngineVerifyOptions options;
  options.loop.queue_capacity = 3;
  const auto verifier = Start(options);
  absl::Notification go_on;
  auto first = std::make_shared<Sink>();
  first->hold_engine = &go_on;
  auto held = verifier->Open(Request({1}, 5), first);
  FORETOKEN_ASSERT_OK(held);
  first->opened.WaitForNotification();  // the engine thread stands still
  std::vector<std::shared_ptr<Sink>> sinks;
  std::vector<std::unique_ptr<VerifySession>> sessions;
  for (int i = 0; i < 3; ++i) {
    sinks.push_back(std::make_shared<Sink>());
    auto session = verifier->Open(Request({2}, 5), sinks.back());
    FORETOKEN_ASSERT_OK(session);
    sessions.push_back(*std::move(session));
  }
  EXPECT_EQ(verifier->loop().snapshot().queue_length, 3);
  EXPECT_THAT(
      verifier->Open(Request({2}, 5), std::make_shared<Sink>()),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("queue")));
  // A session that is in goes on, whoever else wants to come in.
  FORETOKEN_EXPECT_OK(sessions[1]->Ask(PlainRound(1)));
  sessions[1].reset();
  EXPECT_EQ(verifier->loop().snapshot().queue_length, 5);
  go_on.Notify();
  first->AwaitAnswers(1);
  sinks[0]->AwaitAnswers(1);
  sinks[2]->AwaitAnswers(1);
  EXPECT_EQ(verifier->loop().snapshot().sessions, 3);
  held->reset();
  sessions.clear();
  EXPECT_TRUE(Empty(*verifier));
}

TEST(EngineVerifySessionsTest, ADeadlineEndsASessionThatNobodyTouches) {
  const auto verifier = Start();
  auto sink = std::make_shared<Sink>();
  SessionRequest request = Request({1, 2, 3}, 6);
  request.deadline = absl::Now() + absl::Milliseconds(200);
  const auto session = verifier->Open(request, sink);
  FORETOKEN_ASSERT_OK(session);
  // No message, no other session: the thread has to wake by itself.
  EXPECT_THAT(
      sink->AwaitFailure(),
      StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("deadline")));
  EXPECT_GE(absl::Now(), request.deadline);
  EXPECT_TRUE(Empty(*verifier));
}

TEST(EngineVerifySessionsTest, ABadRoundEndsItsSessionAndNoOther) {
  const auto verifier = Start();
  auto bad = std::make_shared<Sink>();
  auto good = std::make_shared<Sink>();
  const auto bad_session = verifier->Open(Request({1}, 5), bad);
  const auto good_session = verifier->Open(Request({1}, 5), good);
  bad->AwaitAnswers(1);
  good->AwaitAnswers(1);
  FORETOKEN_ASSERT_OK((*bad_session)->Ask(PlainRound(77)));
  EXPECT_THAT(bad->AwaitFailure(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("77")));
  FORETOKEN_ASSERT_OK((*good_session)->Ask(PlainRound(2)));
  EXPECT_EQ(good->AwaitAnswers(2).size(), 2u);
  EXPECT_FALSE(good->failed());
}

TEST(EngineVerifySessionsTest, FailAllEndsEverySessionWithItsStatus) {
  const auto verifier = Start();
  std::vector<std::shared_ptr<Sink>> sinks;
  std::vector<std::unique_ptr<VerifySession>> sessions;
  for (int i = 0; i < 5; ++i) {
    sinks.push_back(std::make_shared<Sink>());
    auto session = verifier->Open(Request({1, 2}, 5), sinks.back());
    FORETOKEN_ASSERT_OK(session);
    sessions.push_back(*std::move(session));
  }
  verifier->loop().FailAll(absl::UnavailableError("going away"));
  for (const auto& sink : sinks) {
    EXPECT_THAT(sink->AwaitFailure(), StatusIs(absl::StatusCode::kUnavailable,
                                               HasSubstr("going away")));
  }
  EXPECT_TRUE(Empty(*verifier));
}

TEST(EngineVerifySessionsTest, ItsEndFailsWhatIsLeft) {
  auto verifier = Start();
  auto sink = std::make_shared<Sink>();
  auto session = verifier->Open(Request({1, 2}, 5), sink);
  FORETOKEN_ASSERT_OK(session);
  sink->session = *std::move(session);
  sink->AwaitAnswers(1);
  verifier.reset();
  EXPECT_TRUE(sink->failed());
  EXPECT_THAT(sink->AwaitFailure(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("stopping")));
}

TEST(EngineVerifySessionsTest, RefusesWhatNeedNotReachTheEngine) {
  EngineVerifyOptions options;
  options.max_tree_nodes = 4;
  options.max_rows_per_session = 6;
  const auto verifier = Start(options);
  auto sink = std::make_shared<Sink>();
  SessionRequest request = Request({1}, 5);
  request.numerics_fingerprint = std::string(100000, 'x');
  const absl::Status aborted = verifier->Open(request, sink).status();
  EXPECT_THAT(aborted, StatusIs(absl::StatusCode::kAborted,
                                HasSubstr("numerics_fingerprint")));
  EXPECT_LT(aborted.message().size(), 300u);
  request.numerics_fingerprint = "fake";
  request.tokens.assign(4097, 1);
  EXPECT_THAT(verifier->Open(request, sink),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("4097 tokens, the model's context is 4096")));
  request.tokens = {1};
  const auto session = verifier->Open(request, sink);
  FORETOKEN_ASSERT_OK(session);
  sink->AwaitAnswers(1);

  RoundRequest round = PlainRound(2);
  round.tree = TokenTree::Create(std::vector<TokenId>(5, 1),
                                 std::vector<int32_t>(5, kRootParent))
                   .value();
  EXPECT_THAT((*session)->Ask(round),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("5 draft nodes, want at most 4")));
  round.tree = TokenTree::Create(std::vector<TokenId>(7, 1),
                                 std::vector<int32_t>(7, kRootParent),
                                 /*probes=*/{0, 1, 2, 3})
                   .value();
  EXPECT_THAT((*session)->Ask(round),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("7 nodes, want at most 6")));
  EXPECT_FALSE(sink->failed());
  EXPECT_EQ(verifier->loop().snapshot().sessions, 1);
}

}  // namespace
}  // namespace foretoken::verifier
