#include "common/drafting/observed_draft_sessions.h"

#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::IsOk;
using ::foretoken::testing::StatusIs;
using ::testing::_;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Keeps what a session was opened with and asked for.
class FakeSessions final : public DraftSessions {
 public:
  absl::StatusOr<std::unique_ptr<DraftSession>> Open(
      DraftOpen open, std::shared_ptr<DraftListener> opened) override {
    if (!refusal.ok()) return refusal;
    tokens = std::move(open.tokens);
    listener = std::move(opened);
    return std::make_unique<Session>(*this);
  }

  absl::Status refusal;
  std::vector<TokenId> tokens;
  std::vector<int64_t> rounds;  // their lengths
  // A session under way keeps it until its work is done, even if it is closed.
  std::shared_ptr<DraftListener> listener;

 private:
  class Session final : public DraftSession {
   public:
    explicit Session(FakeSessions& owner) : owner_(owner) {}
    void Ask(DraftRound round) override {
      owner_.rounds.push_back(round.length);
    }

   private:
    FakeSessions& owner_;
  };
};

class Observer final : public DraftObserver {
 public:
  void OnAnswer(const DraftAnswer& answer) override {
    answers.push_back(answer.length);
  }
  void OnFailed(absl::StatusCode code) override { failed.push_back(code); }

  std::vector<int64_t> answers;
  std::vector<absl::StatusCode> failed;
};

class Listener final : public DraftListener {
 public:
  void OnAnswer(DraftAnswer answer) override {
    answers.push_back(answer.length);
  }
  void OnFailed(absl::Status status) override {
    failed.push_back(status.code());
  }
  bool gone() const override { return has_gone; }

  std::vector<int64_t> answers;
  std::vector<absl::StatusCode> failed;
  bool has_gone = false;
};

class ObservedDraftSessionsTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<DraftSession>> Open() {
    DraftOpen open;
    open.tokens = {1, 2};
    return sessions_.Open(std::move(open), listener_);
  }
  void Answer(int64_t length) {
    DraftAnswer answer;
    answer.length = length;
    fake_.listener->OnAnswer(std::move(answer));
  }

  FakeSessions fake_;
  Observer observer_;
  const std::shared_ptr<Listener> listener_ = std::make_shared<Listener>();
  ObservedDraftSessions sessions_{fake_, observer_};
};

TEST_F(ObservedDraftSessionsTest, EventsAreObservedAndPassedOn) {
  auto session = Open();
  ASSERT_THAT(session, IsOk());
  EXPECT_THAT(fake_.tokens, ElementsAre(1, 2));
  DraftRound round;
  round.length = 3;
  (*session)->Ask(std::move(round));
  EXPECT_THAT(fake_.rounds, ElementsAre(3));
  Answer(3);
  fake_.listener->OnFailed(absl::FailedPreconditionError("stale"));
  EXPECT_THAT(observer_.answers, ElementsAre(3));
  EXPECT_THAT(listener_->answers, ElementsAre(3));
  EXPECT_THAT(observer_.failed,
              ElementsAre(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(listener_->failed,
              ElementsAre(absl::StatusCode::kFailedPrecondition));
}

TEST_F(ObservedDraftSessionsTest, ARefusalIsAFailure) {
  fake_.refusal = absl::ResourceExhaustedError("full");
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kResourceExhausted, _));
  EXPECT_THAT(observer_.failed,
              ElementsAre(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(listener_->failed, IsEmpty());
}

TEST_F(ObservedDraftSessionsTest, AClosedSessionIsNotObservedAnyMore) {
  auto session = Open();
  ASSERT_THAT(session, IsOk());
  session->reset();
  Answer(3);
  fake_.listener->OnFailed(absl::UnavailableError("stopping"));
  EXPECT_THAT(observer_.answers, IsEmpty());
  EXPECT_THAT(observer_.failed, IsEmpty());
  EXPECT_THAT(listener_->answers, ElementsAre(3));
  EXPECT_THAT(listener_->failed, ElementsAre(absl::StatusCode::kUnavailable));
}

TEST_F(ObservedDraftSessionsTest, ACallerThatHasGoneIsNotObservedAnyMore) {
  const auto session = Open();
  ASSERT_THAT(session, IsOk());
  listener_->has_gone = true;
  Answer(3);
  fake_.listener->OnFailed(absl::UnavailableError("stopping"));
  fake_.refusal = absl::ResourceExhaustedError("full");
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kResourceExhausted, _));
  EXPECT_THAT(observer_.answers, IsEmpty());
  EXPECT_THAT(observer_.failed, IsEmpty());
  EXPECT_THAT(listener_->answers, ElementsAre(3));
  EXPECT_THAT(listener_->failed, ElementsAre(absl::StatusCode::kUnavailable));
}

TEST_F(ObservedDraftSessionsTest, TheServiceAloneKeepsTheCallersListener) {
  auto session = Open();
  ASSERT_THAT(session, IsOk());
  fake_.listener.reset();
  EXPECT_EQ(listener_.use_count(), 1);
}

}  // namespace
}  // namespace foretoken
