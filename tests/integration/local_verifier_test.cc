// A verifier's sessions past its streams: what a caller in the same process
// sees.
#include "services/local/local_verifier.h"

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/speculation/verify_mailbox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/cluster.h"
#include "tests/support/eventually.h"
#include "tests/support/gate.h"
#include "tests/support/status_matchers.h"

namespace foretoken::testing {
namespace {

using ::testing::_;

RoundRequest PlainRound(int64_t length) {
  RoundRequest round;
  round.length = length;
  return round;
}

// A session and the mailbox of its caller.
struct Caller {
  std::shared_ptr<VerifyMailbox> mailbox = std::make_shared<VerifyMailbox>();
  std::unique_ptr<VerifySession> session;

  absl::StatusOr<RoundResult> Round(int64_t length) {
    const absl::Status asked = session->Ask(PlainRound(length));
    if (!asked.ok()) return asked;
    return mailbox->CollectRound(absl::InfiniteFuture());
  }
};

class LocalVerifierTest : public ::testing::Test {
 protected:
  LocalVerifierTest() { Use({}); }
  void Use(const TestVerifierOptions& options) {
    verifier_ = StartVerifier(options);
    local_ = std::make_unique<local::LocalVerifier>(*verifier_->service);
  }

  absl::StatusOr<Caller> Start(std::vector<TokenId> tokens = {1, 2, 3},
                               absl::Time deadline = absl::InfiniteFuture()) {
    SessionRequest request;
    request.prompt_length = static_cast<int64_t>(tokens.size());
    request.max_length = request.prompt_length + 50;
    request.tokens = std::move(tokens);
    request.deadline = deadline;
    Caller caller;
    auto session = local_->Open(std::move(request), caller.mailbox);
    if (!session.ok()) return session.status();
    caller.session = *std::move(session);
    return caller;
  }
  // Opened and prefilled: it has four tokens.
  Caller Open() {
    auto caller = Start();
    EXPECT_THAT(caller, IsOk());
    const auto prefilled =
        caller->mailbox->CollectPrefill(absl::InfiniteFuture());
    EXPECT_THAT(prefilled, IsOk());
    EXPECT_EQ(prefilled->length, 4);
    EXPECT_EQ(caller->mailbox->fingerprint(), "fake");
    return *std::move(caller);
  }
  bool Empty() {
    return Eventually([&] {
      const auto now = verifier_->service->sessions().loop().snapshot();
      return now.sessions == 0 && now.kv.pages_free == now.kv.pages_total &&
             verifier_->service->Idle();
    });
  }

  std::unique_ptr<TestVerifier> verifier_;
  std::unique_ptr<local::LocalVerifier> local_;
};

TEST_F(LocalVerifierTest, RoundsGoBothWaysAndTheSessionEndsWell) {
  Caller caller = Open();
  for (int64_t length = 4; length < 10; ++length) {
    const auto result = caller.Round(length);
    FORETOKEN_ASSERT_OK(result);
    EXPECT_EQ(result->length, length + 1);
  }
  EXPECT_THAT(caller.mailbox->CollectRound(absl::Now()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, _));
  caller.session.reset();
  EXPECT_TRUE(Empty());
}

TEST_F(LocalVerifierTest, ACancelWakesTheCallerAndItsEndFreesTheSession) {
  Caller caller = Open();
  std::thread reader([&] {
    EXPECT_THAT(caller.mailbox->CollectRound(absl::InfiniteFuture()),
                StatusIs(absl::StatusCode::kCancelled, _));
  });
  caller.mailbox->OnFailed(absl::CancelledError("the request was cancelled"));
  reader.join();
  caller.session.reset();
  EXPECT_TRUE(Empty());
}

TEST_F(LocalVerifierTest, BadRoundsEndTheSession) {
  auto early = Start();
  ASSERT_THAT(early, IsOk());
  EXPECT_THAT(early->Round(9),
              StatusIs(absl::StatusCode::kFailedPrecondition, _));
  Caller caller = Open();
  EXPECT_THAT(caller.Round(17),
              StatusIs(absl::StatusCode::kFailedPrecondition, _));
  EXPECT_TRUE(Empty());
  EXPECT_EQ(verifier_->Sample("foretoken_sessions_failed_total{code="
                              "\"FAILED_PRECONDITION\"}"),
            2);
}

TEST_F(LocalVerifierTest, TheDeadlineEndsAnIdleSession) {
  auto caller = Start({1, 2, 3}, absl::Now() + absl::Milliseconds(50));
  ASSERT_THAT(caller, IsOk());
  EXPECT_THAT(caller->mailbox->CollectRound(absl::InfiniteFuture()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, _));
  EXPECT_TRUE(Empty());
}

TEST_F(LocalVerifierTest, ADrainingVerifierTakesNoneAndEndsTheRest) {
  const Caller caller = Open();
  verifier_->service->BeginDrain();
  EXPECT_THAT(Start(), StatusIs(absl::StatusCode::kUnavailable, _));
  local_->GetInfo(absl::InfiniteFuture(), [](const auto& info) {
    EXPECT_THAT(info, StatusIs(absl::StatusCode::kUnavailable, _));
  });
  EXPECT_FALSE(verifier_->service->Idle());
  verifier_->service->EndAll();
  EXPECT_THAT(caller.mailbox->CollectRound(absl::InfiniteFuture()),
              StatusIs(absl::StatusCode::kUnavailable, _));
  EXPECT_TRUE(Empty());
}

// One whose constraint is compiled is not the engine's yet.
TEST_F(LocalVerifierTest, AnEndReachesASessionThatIsCompiled) {
  Gate gate;
  gate.Close();
  TestVerifierOptions options;
  options.server.sessions.constraints.before_compile =
      [&gate](const Constraint&) { gate.Pass(); };
  Use(options);
  SessionRequest request;
  request.tokens = {1, 2, 3};
  request.prompt_length = 3;
  request.max_length = 53;
  request.constraint = {Constraint::Kind::kRegex, "a", {}};
  auto closed = std::make_shared<VerifyMailbox>();
  auto ended = std::make_shared<VerifyMailbox>();
  auto first = local_->Open(request, closed);
  FORETOKEN_ASSERT_OK(first);
  auto second = local_->Open(request, ended);
  FORETOKEN_ASSERT_OK(second);
  EXPECT_EQ(verifier_->Sample("foretoken_streams"), 2);
  first->reset();
  EXPECT_EQ(verifier_->Sample("foretoken_streams"), 1);
  verifier_->service->EndAll();
  EXPECT_THAT(ended->CollectPrefill(absl::InfiniteFuture()),
              StatusIs(absl::StatusCode::kUnavailable, _));
  EXPECT_TRUE(Empty());
  second->reset();
  gate.Open();
  Use({});  // before the gate goes
}

TEST_F(LocalVerifierTest, SessionsCountAgainstTheLimitOfStreams) {
  TestVerifierOptions options;
  options.server.streams.max_streams = 1;
  Use(options);
  Caller first = Open();
  EXPECT_THAT(Start(), StatusIs(absl::StatusCode::kResourceExhausted, _));
  first.session.reset();
  EXPECT_TRUE(Eventually([&] { return verifier_->service->Idle(); }));
  Open();
  EXPECT_TRUE(Empty());
}

}  // namespace
}  // namespace foretoken::testing
