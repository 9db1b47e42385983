#include "common/drafting/queued_draft_sessions.h"

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/draft_caller.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::DraftCaller;
using ::foretoken::testing::IsOk;
using ::foretoken::testing::StatusIs;
using ::testing::_;
using ::testing::ElementsAre;

// Sessions that remember what they were told.
class FakeSessions final : public DraftSessions {
 public:
  absl::StatusOr<std::unique_ptr<DraftSession>> Open(
      DraftOpen, std::shared_ptr<DraftListener> listener) override {
    if (hold != nullptr) hold->WaitForNotification();
    if (!refusal.ok()) return refusal;
    ++live;
    return std::make_unique<Session>(*this, std::move(listener));
  }

  absl::Notification* hold = nullptr;
  absl::Status refusal;
  absl::Mutex mu;
  std::vector<int64_t> lengths;
  std::atomic<int> live{0};

 private:
  class Session final : public DraftSession {
   public:
    Session(FakeSessions& owner, std::shared_ptr<DraftListener> listener)
        : owner_(owner), listener_(std::move(listener)) {}
    ~Session() override { --owner_.live; }
    void Ask(DraftRound round) override {
      {
        absl::MutexLock lock(&owner_.mu);
        owner_.lengths.push_back(round.length);
      }
      DraftAnswer answer;
      answer.length = round.length;
      listener_->OnAnswer(std::move(answer));
    }

   private:
    FakeSessions& owner_;
    const std::shared_ptr<DraftListener> listener_;
  };
};

DraftRound Round(int64_t length, size_t committed = 1) {
  DraftRound round;
  round.length = length;
  round.committed.assign(committed, 1);
  return round;
}

TEST(QueuedDraftSessionsTest, RoundsThatOvertakeTheOpeningAreAnsweredInOrder) {
  FakeSessions fake;
  absl::Notification open;
  fake.hold = &open;
  WorkerPool workers(2, 8);
  QueuedDraftSessions sessions(fake, workers);
  auto caller = DraftCaller::Open(sessions, DraftOpen());
  ASSERT_THAT(caller, IsOk());
  for (int i = 1; i <= 3; ++i) (*caller)->Ask(Round(i));
  open.Notify();
  DraftAnswer answer;
  for (int i = 1; i <= 3; ++i) {
    ASSERT_THAT((*caller)->Collect(answer), IsOk());
    EXPECT_EQ(answer.length, i);
  }
  // Much text is left to a worker.
  ASSERT_THAT((*caller)->Round(Round(1000, 997), answer), IsOk());
  EXPECT_EQ(answer.length, 1000);
  ASSERT_THAT((*caller)->Round(Round(1001), answer), IsOk());
}

TEST(QueuedDraftSessionsTest, ASessionThatIsClosedHearsOfItsRoundsAndEnds) {
  FakeSessions fake;
  absl::Notification open;
  fake.hold = &open;
  {
    WorkerPool workers(1, 8);
    QueuedDraftSessions sessions(fake, workers);
    auto used = DraftCaller::Open(sessions, DraftOpen());
    auto unused = DraftCaller::Open(sessions, DraftOpen());
    (*used)->Ask(Round(1));
    (*used)->Close();
    (*unused)->Close();
    open.Notify();
  }
  EXPECT_THAT(fake.lengths, ElementsAre(1));
  EXPECT_EQ(fake.live, 0);
}

TEST(QueuedDraftSessionsTest, ARefusedSessionFails) {
  FakeSessions fake;
  fake.refusal = absl::UnimplementedError("no such mode");
  WorkerPool workers(1, 8);
  QueuedDraftSessions sessions(fake, workers);
  auto caller = DraftCaller::Open(sessions, DraftOpen());
  ASSERT_THAT(caller, IsOk());
  DraftAnswer answer;
  EXPECT_THAT((*caller)->Round(Round(1), answer),
              StatusIs(absl::StatusCode::kUnimplemented, _));
  (*caller)->Ask(Round(2));  // to nobody
}

TEST(QueuedDraftSessionsTest, AFullLineOfWorkersRefusesTheSession) {
  FakeSessions fake;
  absl::Notification done;
  WorkerPool one(1, 0);
  ASSERT_THAT(one.Submit([&] { done.WaitForNotification(); }), IsOk());
  QueuedDraftSessions sessions(fake, one);
  EXPECT_THAT(DraftCaller::Open(sessions, DraftOpen()),
              StatusIs(absl::StatusCode::kResourceExhausted, _));
  done.Notify();
}

TEST(QueuedDraftSessionsTest, WithoutAWorkerASessionEndsAtOnce) {
  FakeSessions fake;
  absl::Notification done;
  WorkerPool one(1, 0);
  QueuedDraftSessions sessions(fake, one);
  auto caller = DraftCaller::Open(sessions, DraftOpen());
  ASSERT_THAT(caller, IsOk());
  DraftAnswer answer;
  ASSERT_THAT((*caller)->Round(Round(1), answer), IsOk());
  while (!one.Submit([&] { done.WaitForNotification(); }).ok()) {
  }
  EXPECT_THAT((*caller)->Round(Round(1000, 999), answer),
              StatusIs(absl::StatusCode::kResourceExhausted, _));
  EXPECT_EQ(fake.live, 0);
  done.Notify();
}

}  // namespace
}  // namespace foretoken
