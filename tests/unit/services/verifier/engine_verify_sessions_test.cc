#include "services/verifier/core/engine_verify_sessions.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/stopping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_backend.h"
#include "tests/support/letter_vocabulary.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/services/verifier/engine_fixture.h"

namespace foretoken::verifier {
namespace {

using ::foretoken::testing::Eventually;
using ::foretoken::testing::FakeBackend;
using ::foretoken::testing::FakeBackendOptions;
using ::foretoken::testing::StatusIs;
using ::testing::_;
using ::testing::Each;
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
    {
      absl::MutexLock lock(&session_mu);
      session.reset();
    }
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
  absl::Mutex session_mu;  // a test holds it while it opens the session
  std::unique_ptr<VerifySession> session;  // closed by OnFailed

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

// The constraint whose compilation waits until it is let go.
constexpr char kHeld[] = "held";

// Sessions with a constraint, on texts of letters.
class ConstrainedSessionsTest : public ::testing::Test {
 protected:
  ConstrainedSessionsTest() {
    options_.constraints.before_compile = [this](const Constraint& constraint) {
      absl::MutexLock lock(&mu_);
      ++compilations_;
      if (constraint.source != kHeld) return;
      held_ = true;
      mu_.Await(absl::Condition(&go_));
    };
  }
  ~ConstrainedSessionsTest() override { LetGo(); }

  void Begin() {
    VerifyEngineOptions engine;
    engine.vocabulary =
        testing::LetterVocabulary(FakeBackendOptions().vocab_size);
    verifier_ = Start(options_, engine);
  }
  static SessionRequest Constrained(const std::string& regex,
                                    const std::string& caller = "") {
    SessionRequest request = Request({30, 31, 32}, 20);
    request.sampling.end_tokens = {0};
    request.stop_tokens = {0};
    request.constraint = {Constraint::Kind::kRegex, regex, {}};
    request.caller = caller;
    return request;
  }
  // A session whose listener owns it, as a stream does.
  std::shared_ptr<Sink> Open(SessionRequest request) {
    auto sink = std::make_shared<Sink>();
    absl::MutexLock lock(&sink->session_mu);
    auto session = verifier_->Open(std::move(request), sink);
    EXPECT_THAT(session, testing::IsOk());
    if (session.ok()) sink->session = *std::move(session);
    return sink;
  }
  // As Open; returns once its constraint is being compiled.
  std::shared_ptr<Sink> Hold() {
    auto sink = Open(Constrained(kHeld, "holder"));
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(&held_));
    return sink;
  }
  void LetGo() {
    absl::MutexLock lock(&mu_);
    go_ = true;
  }
  int compilations() {
    absl::MutexLock lock(&mu_);
    return compilations_;
  }

  absl::Mutex mu_;
  bool held_ ABSL_GUARDED_BY(mu_) = false;
  bool go_ ABSL_GUARDED_BY(mu_) = false;
  int compilations_ ABSL_GUARDED_BY(mu_) = 0;
  EngineVerifyOptions options_;
  std::unique_ptr<EngineVerifySessions> verifier_;
};

TEST_F(ConstrainedSessionsTest, TheTextObeysAConstraintThatWasCompiled) {
  Begin();
  for (int i = 0; i < 2; ++i) {  // the second session finds it
    const auto sink = Open(Constrained("[ab]{3}"));
    for (int answers = 1; answers < 3; ++answers) {
      sink->AwaitAnswers(answers);
      FORETOKEN_ASSERT_OK(sink->session->Ask(PlainRound(3 + answers)));
    }
    const std::vector<TokenId> tokens = sink->AwaitAnswers(3);
    ASSERT_EQ(tokens.size(), 3u);
    EXPECT_THAT(tokens, Each(::testing::AnyOf(1, 2)));
    sink->session.reset();
    EXPECT_TRUE(Empty(*verifier_));
    EXPECT_FALSE(sink->failed());
    EXPECT_EQ(compilations(), 1);
  }
}

TEST_F(ConstrainedSessionsTest, ACompilationHoldsUpNoCallerAndNoOtherSession) {
  Begin();
  const auto known = Open(Constrained("known"));
  known->AwaitAnswers(1);
  const auto held = Hold();
  std::vector<std::shared_ptr<Sink>> waiting;
  for (int i = 0; i < 100; ++i) {
    waiting.push_back(
        Open(Constrained(absl::StrCat("[ab]{1,", 2 + i, "}"), "flood")));
  }
  EXPECT_THAT(held->session->Ask(PlainRound(3)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("not open yet")));
  const auto free = Open(Request({1, 2, 3}, 6));
  const auto found = Open(Constrained("known"));
  free->AwaitAnswers(1);
  found->AwaitAnswers(1);
  EXPECT_FALSE(held->opened.HasBeenNotified());
  EXPECT_FALSE(waiting.back()->opened.HasBeenNotified());
  EXPECT_EQ(verifier_->loop().snapshot().sessions, 3);
  LetGo();
  held->AwaitAnswers(1);
  FORETOKEN_EXPECT_OK(held->session->Ask(PlainRound(4)));
  EXPECT_EQ(held->AwaitAnswers(2).size(), 2u);
  for (const auto& sink : waiting) {
    EXPECT_THAT(sink->AwaitAnswers(1), Each(::testing::AnyOf(1, 2)));
    EXPECT_FALSE(sink->failed());
  }
  for (const auto& sink : {known, held, free, found}) sink->session.reset();
  for (const auto& sink : waiting) sink->session.reset();
  EXPECT_TRUE(Empty(*verifier_));
}

TEST_F(ConstrainedSessionsTest, ASessionClosedBeforeItIsCompiledIsForgotten) {
  Begin();
  auto held = Hold();
  auto waits = Open(Constrained("waits"));
  for (std::shared_ptr<Sink>* each : {&held, &waits}) {
    std::unique_ptr<VerifySession> session = std::move((*each)->session);
    const std::weak_ptr<Sink> listener = *each;
    each->reset();
    ASSERT_FALSE(listener.expired());
    session.reset();
    EXPECT_TRUE(listener.expired());
  }
  LetGo();
  const auto next = Open(Constrained("next"));
  next->AwaitAnswers(1);
  EXPECT_EQ(verifier_->loop().snapshot().sessions, 1);
  EXPECT_EQ(compilations(), 2);
  next->session.reset();
}

TEST_F(ConstrainedSessionsTest, AFailureMayCloseItsSession) {
  Begin();
  const auto held = Hold();
  const auto bad = Open(Constrained("a("));
  LetGo();
  EXPECT_THAT(bad->AwaitFailure(), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("constraint: ")));
  EXPECT_EQ(bad->session, nullptr);
  // So may one that the engine finds.
  SessionRequest empty = Constrained("[ab]{9}");
  empty.tokens.clear();
  EXPECT_THAT(Open(empty)->AwaitFailure(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the prompt is empty")));
  held->session.reset();
  EXPECT_TRUE(Empty(*verifier_));
}

TEST_F(ConstrainedSessionsTest, ADeadlineThatPassesEndsASessionThatWaits) {
  Begin();
  const auto held = Hold();
  SessionRequest request = Constrained("late");
  request.deadline = absl::InfinitePast();
  EXPECT_THAT(Open(request)->AwaitFailure(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, _));
  EXPECT_FALSE(held->failed());
  held->session.reset();
}

TEST_F(ConstrainedSessionsTest, AFullQueueRefusesTheCallerThatFillsIt) {
  options_.constraints.waiting.items = 2;
  Begin();
  // As a stream does, each listener takes a lock that its caller holds.
  absl::Mutex streams;
  class Stream final : public VerifyListener {
   public:
    explicit Stream(absl::Mutex& streams) : streams_(streams) {}
    void OnOpened(const std::string&) override {}
    void OnPrefilled(PrefillResult) override {}
    void OnRound(RoundResult) override {}
    void OnFailed(absl::Status status) override {
      absl::MutexLock lock(&streams_);
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                                   HasSubstr("queue is full")));
      failed.Notify();
    }
    absl::Notification failed;

   private:
    absl::Mutex& streams_;
  };
  const auto held = Hold();
  std::vector<std::shared_ptr<Stream>> listeners;
  std::vector<std::unique_ptr<VerifySession>> sessions;
  {
    absl::MutexLock lock(&streams);
    for (const char* caller : {"a", "a", "b"}) {
      listeners.push_back(std::make_shared<Stream>(streams));
      auto session = verifier_->Open(
          Constrained(absl::StrCat("text", listeners.size()), caller),
          listeners.back());
      FORETOKEN_ASSERT_OK(session);
      sessions.push_back(*std::move(session));
    }
    EXPECT_THAT(verifier_->Open(Constrained("text4", "a"),
                                std::make_shared<Stream>(streams)),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         HasSubstr("queue is full")));
  }
  listeners[1]->failed.WaitForNotification();
  {
    absl::MutexLock lock(&streams);
    sessions.clear();
  }
  EXPECT_FALSE(listeners[0]->failed.HasBeenNotified());
  EXPECT_FALSE(listeners[2]->failed.HasBeenNotified());
  held->session.reset();
  LetGo();
  verifier_.reset();  // before what the listeners use
}

TEST_F(ConstrainedSessionsTest, FailAllEndsThoseThatAreCompiledAtOnce) {
  Begin();
  const auto open = Open(Constrained("known"));
  open->AwaitAnswers(1);
  const auto held = Hold();
  const auto waits = Open(Constrained("waits"));
  verifier_->FailAll(absl::UnavailableError("going away"));
  EXPECT_TRUE(held->failed());
  EXPECT_TRUE(waits->failed());
  for (const auto& sink : {held, waits, open}) {
    EXPECT_THAT(sink->AwaitFailure(), StatusIs(absl::StatusCode::kUnavailable,
                                               HasSubstr("going away")));
  }
  LetGo();
  // Later ones are opened.
  const auto later = Open(Constrained("later"));
  later->AwaitAnswers(1);
  EXPECT_FALSE(later->failed());
  later->session.reset();
  EXPECT_TRUE(Empty(*verifier_));
}

TEST_F(ConstrainedSessionsTest, ItsEndFailsThoseThatAreCompiled) {
  Begin();
  const auto open = Open(Constrained("known"));
  open->AwaitAnswers(1);
  const auto held = Hold();
  const auto waits = Open(Constrained("waits"));
  std::thread end([&] { verifier_.reset(); });
  // Before the compilation in progress has ended.
  EXPECT_TRUE(IsStopping(held->AwaitFailure()));
  EXPECT_TRUE(IsStopping(waits->AwaitFailure()));
  LetGo();
  end.join();
  EXPECT_TRUE(IsStopping(open->AwaitFailure()));
  for (const auto& sink : {held, waits, open}) {
    EXPECT_EQ(sink->session, nullptr);
  }
}

}  // namespace
}  // namespace foretoken::verifier
