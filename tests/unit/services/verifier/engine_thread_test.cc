#include "services/verifier/adapters/engine_thread.h"

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_backend.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/services/verifier/engine_fixture.h"

namespace foretoken::verifier {
namespace {

using ::foretoken::testing::FakeBackend;
using ::foretoken::testing::FakeBackendOptions;
using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);

// Remembers what it is told, and lets a test wait for it.
class Sink final : public SessionSink {
 public:
  void OnOpened() override {
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

 private:
  absl::Mutex mu_;
  std::vector<TokenId> tokens_;
  int answers_ = 0;
  bool failed_ = false;
  absl::Status failure_;
};

std::unique_ptr<EngineThread> Start(EngineThreadOptions options = {},
                                    VerifyEngineOptions engine = {}) {
  return std::make_unique<EngineThread>(
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

bool Eventually(const std::function<bool()>& condition) {
  const absl::Time give_up = absl::Now() + kPatience;
  while (!condition()) {
    if (absl::Now() > give_up) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

// Nothing is held any more.
bool Empty(const EngineThread& thread) {
  return Eventually([&] {
    const EngineSnapshot now = thread.Snapshot();
    return now.sessions == 0 && now.queue_length == 0 &&
           now.kv.pages_free == now.kv.pages_total;
  });
}

TEST(EngineThreadTest, RunsASessionFromOpenToClose) {
  const auto thread = Start();
  const SessionRequest request = Request({1, 2, 3}, 6);
  auto sink = std::make_shared<Sink>();
  const auto ticket = thread->Open(request, sink);
  FORETOKEN_ASSERT_OK(ticket);
  for (int answers = 1; answers < 6; ++answers) {
    sink->AwaitAnswers(answers);
    FORETOKEN_ASSERT_OK(thread->Round(*ticket, PlainRound(3 + answers)));
  }
  EXPECT_EQ(sink->AwaitAnswers(6), Decode(request, 50));
  thread->Close(*ticket);
  EXPECT_TRUE(Empty(*thread));
  EXPECT_EQ(thread->Snapshot().totals.rounds, 5);
  // Of a ticket that is closed nothing is known, and nothing comes of it.
  FORETOKEN_EXPECT_OK(thread->Round(*ticket, PlainRound(9)));
  thread->Close(*ticket);
  EXPECT_TRUE(Empty(*thread));
  EXPECT_FALSE(sink->failed());
}

TEST(EngineThreadTest, AFullQueueRefusesNewcomersAndStillTakesRoundsAndCloses) {
  EngineThreadOptions options;
  options.queue_capacity = 3;
  const auto thread = Start(options);
  absl::Notification go_on;
  auto first = std::make_shared<Sink>();
  first->hold_engine = &go_on;
  const auto held = thread->Open(Request({1}, 5), first);
  FORETOKEN_ASSERT_OK(held);
  first->opened.WaitForNotification();  // the engine thread stands still
  std::vector<std::shared_ptr<Sink>> sinks;
  std::vector<Ticket> tickets;
  for (int i = 0; i < 3; ++i) {
    sinks.push_back(std::make_shared<Sink>());
    const auto ticket = thread->Open(Request({2}, 5), sinks.back());
    FORETOKEN_ASSERT_OK(ticket);
    tickets.push_back(*ticket);
  }
  EXPECT_EQ(thread->Snapshot().queue_length, 3);
  EXPECT_THAT(
      thread->Open(Request({2}, 5), std::make_shared<Sink>()),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("queue")));
  // A session that is in goes on, whoever else wants to come in.
  FORETOKEN_EXPECT_OK(thread->Round(tickets[1], PlainRound(1)));
  thread->Close(tickets[1]);
  EXPECT_EQ(thread->Snapshot().queue_length, 5);
  go_on.Notify();
  first->AwaitAnswers(1);
  sinks[0]->AwaitAnswers(1);
  sinks[2]->AwaitAnswers(1);
  EXPECT_EQ(thread->Snapshot().sessions, 3);
  for (const Ticket ticket : {*held, tickets[0], tickets[2]}) {
    thread->Close(ticket);
  }
  EXPECT_TRUE(Empty(*thread));
}

TEST(EngineThreadTest, ADeadlineEndsASessionThatNobodyTouches) {
  const auto thread = Start();
  auto sink = std::make_shared<Sink>();
  SessionRequest request = Request({1, 2, 3}, 6);
  request.deadline = absl::Now() + absl::Milliseconds(200);
  FORETOKEN_ASSERT_OK(thread->Open(request, sink));
  // No message, no other session: the thread has to wake by itself.
  EXPECT_THAT(
      sink->AwaitFailure(),
      StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("deadline")));
  EXPECT_GE(absl::Now(), request.deadline);
  EXPECT_TRUE(Empty(*thread));
}

TEST(EngineThreadTest, ABadRoundEndsItsSessionAndNoOther) {
  const auto thread = Start();
  auto bad = std::make_shared<Sink>();
  auto good = std::make_shared<Sink>();
  const auto bad_ticket = thread->Open(Request({1}, 5), bad);
  const auto good_ticket = thread->Open(Request({1}, 5), good);
  bad->AwaitAnswers(1);
  good->AwaitAnswers(1);
  FORETOKEN_ASSERT_OK(thread->Round(*bad_ticket, PlainRound(77)));
  EXPECT_THAT(bad->AwaitFailure(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("77")));
  FORETOKEN_ASSERT_OK(thread->Round(*good_ticket, PlainRound(2)));
  EXPECT_EQ(good->AwaitAnswers(2).size(), 2u);
  EXPECT_FALSE(good->failed());
}

TEST(EngineThreadTest, FailAllEndsEverySessionWithItsStatus) {
  const auto thread = Start();
  std::vector<std::shared_ptr<Sink>> sinks;
  for (int i = 0; i < 5; ++i) {
    sinks.push_back(std::make_shared<Sink>());
    FORETOKEN_ASSERT_OK(thread->Open(Request({1, 2}, 5), sinks.back()));
  }
  thread->FailAll(absl::UnavailableError("going away"));
  for (const auto& sink : sinks) {
    EXPECT_THAT(sink->AwaitFailure(), StatusIs(absl::StatusCode::kUnavailable,
                                               HasSubstr("going away")));
  }
  EXPECT_TRUE(Empty(*thread));
}

TEST(EngineThreadTest, ItsEndFailsWhatIsLeft) {
  auto thread = Start();
  auto sink = std::make_shared<Sink>();
  FORETOKEN_ASSERT_OK(thread->Open(Request({1, 2}, 5), sink));
  sink->AwaitAnswers(1);
  thread.reset();
  EXPECT_TRUE(sink->failed());
  EXPECT_THAT(sink->AwaitFailure(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("stopping")));
}

}  // namespace
}  // namespace foretoken::verifier
