#include "services/orchestrator/core/drafters/ask_policy.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/services/orchestrator/drafters/fake_draft_sessions.h"

namespace foretoken::orchestrator {
namespace {

using ::testing::ElementsAre;

class AskPolicyTest : public ::testing::Test {
 protected:
  AskPolicyTest() {
    breaker_.failures_in_a_row = 3;
    breaker_.silence = absl::Seconds(2);
    breaker_.first_backoff = absl::Seconds(10);
    breaker_.jitter = 0;
    Make();
  }
  void Make() {
    state_ = CircuitBreaker::State::kClosed;
    policy_.reset();
    service_ = std::make_unique<DraftReplicas>(
        "test", breaker_, [this] { return now_; },
        [this](CircuitBreaker::State state) { state_ = state; });
    SetReplicas({"a"});
    policy_ =
        std::make_unique<AskPolicy>(*service_, [] { return DraftOpen(); });
  }
  // "a" is sessions_, any other name others_.
  void SetReplicas(const std::vector<std::string>& names) {
    service_->SetMembers(names, [&](size_t i) {
      return EndpointOf(names[i] == "a" ? sessions_ : others_);
    });
  }

  // One round: asks, and waits no time for the answer.
  DraftOutcome Round() {
    ++length_;
    now_ += absl::Milliseconds(10);
    if (policy_->Begin()) {
      DraftRound round;
      round.length = length_;
      round.committed = {static_cast<TokenId>(length_)};
      round.max_nodes = 8;
      policy_->Ask(std::move(round));
    }
    return policy_->Collect(now_, draft_);
  }

  CircuitBreakerOptions breaker_;
  absl::Time now_ = absl::UnixEpoch();
  FakeDraftSessions sessions_;
  FakeDraftSessions others_;
  CircuitBreaker::State state_;  // of the service
  std::unique_ptr<DraftReplicas> service_;
  std::unique_ptr<AskPolicy> policy_;
  int64_t length_ = 0;
  SourceDraft draft_;
};

TEST_F(AskPolicyTest, AnAnswerInTimeIsTheDraft) {
  EXPECT_EQ(Round(), DraftOutcome::kAnswered);
  EXPECT_THAT(draft_.tree.tokens, ElementsAre(1));
  EXPECT_THAT(draft_.phrases, ElementsAre(ElementsAre(1, 2)));
  EXPECT_EQ(Round(), DraftOutcome::kAnswered);
  EXPECT_EQ(sessions_.opens, 1);
}

TEST_F(AskPolicyTest, ADraftThatWasCutOffSaysSo) {
  EXPECT_EQ(Round(), DraftOutcome::kAnswered);
  EXPECT_FALSE(draft_.shortened);
  sessions_.shortened = true;
  EXPECT_EQ(Round(), DraftOutcome::kAnswered);
  EXPECT_TRUE(draft_.shortened);
  sessions_.shortened = false;
  EXPECT_EQ(Round(), DraftOutcome::kAnswered);
  EXPECT_FALSE(draft_.shortened);
}

// Otherwise a cancelled request would wait for a service that hangs.
TEST_F(AskPolicyTest, ACancelledRequestWaitsNoLonger) {
  int looks = 0;
  policy_ = std::make_unique<AskPolicy>(
      *service_, [] { return DraftOpen(); }, [&] { return ++looks == 2; });
  sessions_.at_once = false;
  ASSERT_TRUE(policy_->Begin());
  DraftRound round;
  round.length = 1;
  round.max_nodes = 8;
  policy_->Ask(std::move(round));
  EXPECT_EQ(policy_->Collect(absl::InfiniteFuture(), draft_),
            DraftOutcome::kLate);
  EXPECT_EQ(looks, 2);
}

TEST_F(AskPolicyTest, ASessionIsOpenedAheadUnlessTheBreakerIsOpen) {
  policy_->OpenAhead();
  policy_->OpenAhead();
  EXPECT_EQ(sessions_.opens, 1);
  sessions_.failure = absl::InternalError("broken");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Round(), DraftOutcome::kBroken);
  EXPECT_EQ(state_, CircuitBreaker::State::kOpen);
  const int opens = sessions_.opens;
  policy_->OpenAhead();
  EXPECT_EQ(sessions_.opens, opens);
}

TEST_F(AskPolicyTest, RoundsAfterLateAnswersGoWithoutAnAsk) {
  sessions_.at_once = false;
  std::vector<int64_t> asked;
  while (length_ < 80) {
    EXPECT_EQ(Round(), DraftOutcome::kLate);
    if (sessions_.owed.empty()) continue;
    asked.push_back(length_);
    sessions_.Answer();  // too late
  }
  // 0, 1, 3, 7, 15, 31 rounds in between.
  EXPECT_THAT(asked, ElementsAre(1, 2, 4, 8, 16, 32, 64));
  EXPECT_EQ(state_, CircuitBreaker::State::kClosed);
  // One in time, and it is asked in every round again.
  sessions_.at_once = true;
  while (Round() != DraftOutcome::kAnswered) ASSERT_LT(length_, 200);
  // The phrases of the seven late ones come with it.
  EXPECT_EQ(draft_.phrases.size(), 8u);
  EXPECT_EQ(Round(), DraftOutcome::kAnswered);
}

class ReadingSessionTest : public AskPolicyTest {
 protected:
  // One round; a session that has not read its text is asked to.
  DraftOutcome Round() {
    ++length_;
    now_ += absl::Milliseconds(10);
    if (policy_->Begin()) {
      DraftRound round;
      round.length = length_;
      if (policy_->has_read()) {
        policy_->Ask(std::move(round));
      } else {
        policy_->Read(std::move(round));
      }
    }
    return policy_->Collect(now_, draft_);
  }
};

TEST_F(ReadingSessionTest, RoundsGoOnUntilItHasReadTheText) {
  sessions_.at_once = false;
  for (int i = 0; i < 300; ++i) EXPECT_EQ(Round(), DraftOutcome::kNotAsked);
  EXPECT_THAT(sessions_.lengths, ElementsAre(1));
  EXPECT_EQ(policy_->TakeTextRead(), std::nullopt);
  EXPECT_EQ(state_, CircuitBreaker::State::kClosed) << "nothing is late";
  sessions_.Answer();
  sessions_.at_once = true;
  EXPECT_EQ(Round(), DraftOutcome::kAnswered);
  EXPECT_THAT(sessions_.lengths, ElementsAre(1, 301));
  const std::optional<TextRead> read = policy_->TakeTextRead();
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->tokens, 1);
  EXPECT_EQ(read->time, absl::Milliseconds(2990));
  EXPECT_EQ(policy_->TakeTextRead(), std::nullopt) << "told once";
}

TEST_F(ReadingSessionTest, ALostSessionIsReadAgainOnTheNextOne) {
  sessions_.at_once = false;
  Round();
  sessions_.listener->OnFailed(absl::UnavailableError("gone"));
  EXPECT_EQ(Round(), DraftOutcome::kBroken);
  EXPECT_EQ(sessions_.opens, 2) << "reopened in the round that notices";
  EXPECT_EQ(Round(), DraftOutcome::kNotAsked);
  EXPECT_THAT(sessions_.lengths, ElementsAre(1, 2));
  EXPECT_FALSE(policy_->has_read());
}

TEST_F(ReadingSessionTest, OneThatNeverAnswersIsGivenUp) {
  sessions_.at_once = false;
  Round();
  now_ += absl::Minutes(11);
  EXPECT_EQ(Round(), DraftOutcome::kBroken);
  EXPECT_EQ(sessions_.live, 0);
  Round();
  EXPECT_EQ(sessions_.opens, 2);
}

TEST_F(AskPolicyTest, RoundsThatWantNoDraftCountDownAPause) {
  sessions_.at_once = false;
  for (int i = 0; i < 3; ++i) Round();
  sessions_.Answer();
  sessions_.Answer();
  const size_t asked = sessions_.lengths.size();  // 1, 2, then a pause of 1
  ASSERT_EQ(asked, 2u);
  Round();  // 4: asked, then a pause of 3
  for (int i = 0; i < 3; ++i) policy_->Pass();
  EXPECT_EQ(policy_->Collect(now_, draft_), DraftOutcome::kNotAsked);
  Round();
  EXPECT_EQ(sessions_.lengths.size(), asked + 2);
}

TEST_F(AskPolicyTest, AServiceThatOwesFourAnswersIsNotAskedForMore) {
  breaker_.silence = absl::Hours(1);
  Make();
  sessions_.at_once = false;
  for (int i = 0; i < 200; ++i) EXPECT_EQ(Round(), DraftOutcome::kLate);
  EXPECT_EQ(sessions_.owed.size(), 4u);
  // One that comes makes room for another ask.
  sessions_.Answer();
  while (sessions_.lengths.size() < 5) {
    Round();
    ASSERT_LT(length_, 400);
  }
  EXPECT_EQ(sessions_.opens, 1);
}

TEST_F(AskPolicyTest, ASessionThatIsSilentForAMinuteIsOpenedAnew) {
  breaker_.silence = absl::Hours(1);
  Make();
  sessions_.at_once = false;
  for (int i = 0; i < 200; ++i) Round();
  EXPECT_EQ(sessions_.opens, 1);
  now_ += absl::Minutes(1);
  for (int i = 0; i < 40; ++i) Round();
  EXPECT_EQ(sessions_.opens, 2);
  EXPECT_EQ(sessions_.live, 1);
}

TEST_F(AskPolicyTest, AHungServiceOpensTheBreakerAndKeepsItsSession) {
  sessions_.at_once = false;
  while (state_ != CircuitBreaker::State::kOpen) {
    EXPECT_EQ(Round(), DraftOutcome::kLate);
    now_ += absl::Milliseconds(200);
    ASSERT_LT(length_, 100);
  }
  // It answers at last: the back-off over, the same session is asked.
  while (!sessions_.owed.empty()) sessions_.Answer();
  sessions_.at_once = true;
  DraftOutcome outcome = Round();
  while (outcome == DraftOutcome::kLate) outcome = Round();  // the pause
  EXPECT_EQ(outcome, DraftOutcome::kBreakerOpen);
  now_ += breaker_.first_backoff;
  EXPECT_EQ(Round(), DraftOutcome::kAnswered);
  EXPECT_EQ(sessions_.opens, 1);
  EXPECT_EQ(state_, CircuitBreaker::State::kClosed);
}

TEST_F(AskPolicyTest, AHungReplicaIsLeftForAnother) {
  sessions_.at_once = false;
  EXPECT_EQ(Round(), DraftOutcome::kLate);
  ASSERT_EQ(sessions_.opens, 1);
  SetReplicas({"a", "b"});
  while (others_.opens == 0) {
    Round();
    now_ += absl::Milliseconds(200);
    ASSERT_LT(length_, 100);
  }
  EXPECT_EQ(Round(), DraftOutcome::kAnswered);
  EXPECT_EQ(sessions_.live, 0);
  EXPECT_EQ(others_.opens, 1);
  EXPECT_EQ(state_, CircuitBreaker::State::kClosed) << "b answers";
}

TEST_F(AskPolicyTest, ASessionThatOwesNothingStaysThroughAnOpenBreaker) {
  EXPECT_EQ(Round(), DraftOutcome::kAnswered);
  // Other requests fail there.
  for (int i = 0; i < breaker_.failures_in_a_row; ++i) {
    auto lease = service_->Choose("", DraftReplicas::Use::kAsk);
    lease->peer().breaker().Failure(lease->epoch());
  }
  ASSERT_EQ(state_, CircuitBreaker::State::kOpen);
  SetReplicas({"a", "b"});
  EXPECT_EQ(Round(), DraftOutcome::kBreakerOpen);
  now_ += breaker_.first_backoff;
  EXPECT_EQ(Round(), DraftOutcome::kAnswered);
  EXPECT_EQ(sessions_.opens, 1);
  EXPECT_EQ(others_.opens, 0);
}

TEST_F(AskPolicyTest, ABrokenSessionIsOpenedAgainOnAnotherReplica) {
  EXPECT_EQ(Round(), DraftOutcome::kAnswered);
  SetReplicas({"a", "b"});
  sessions_.failure = absl::UnavailableError("gone");
  EXPECT_EQ(Round(), DraftOutcome::kBroken);
  EXPECT_EQ(Round(), DraftOutcome::kAnswered);
  EXPECT_EQ(sessions_.opens, 1);
  EXPECT_EQ(others_.opens, 1);
}

TEST_F(AskPolicyTest, ASessionStaysWhereItIsWhateverComesAndGoes) {
  EXPECT_EQ(Round(), DraftOutcome::kAnswered);
  SetReplicas({"a", "b", "c", "d"});
  EXPECT_EQ(Round(), DraftOutcome::kAnswered);
  SetReplicas({"b"});
  EXPECT_EQ(Round(), DraftOutcome::kAnswered);
  EXPECT_EQ(sessions_.opens, 1);
  EXPECT_EQ(others_.opens, 0);
}

TEST_F(AskPolicyTest, WithoutReplicasThereIsNoDraftUntilOneComes) {
  SetReplicas({});
  policy_->OpenAhead();
  EXPECT_EQ(Round(), DraftOutcome::kBreakerOpen);
  SetReplicas({"a"});
  EXPECT_EQ(Round(), DraftOutcome::kAnswered);
}

TEST_F(AskPolicyTest, ABrokenSessionIsOpenedAgainByTheNextAsk) {
  EXPECT_EQ(Round(), DraftOutcome::kAnswered);
  sessions_.failure = absl::UnavailableError("gone");
  EXPECT_EQ(Round(), DraftOutcome::kBroken);
  EXPECT_EQ(sessions_.live, 0);
  sessions_.failure = absl::OkStatus();
  EXPECT_EQ(Round(), DraftOutcome::kAnswered);
  EXPECT_EQ(sessions_.opens, 2);
}

TEST_F(AskPolicyTest, OneThatForgetsASessionIsAskedOnAnother) {
  EXPECT_EQ(Round(), DraftOutcome::kAnswered);
  sessions_.failure = absl::FailedPreconditionError("reopen");
  EXPECT_EQ(Round(), DraftOutcome::kBroken);
  sessions_.failure = absl::OkStatus();
  EXPECT_EQ(Round(), DraftOutcome::kAnswered);
}

TEST_F(AskPolicyTest, WhatFoundNoRoomIsAskedForAgain) {
  sessions_.refusal = absl::ResourceExhaustedError("full");
  EXPECT_EQ(Round(), DraftOutcome::kRefused);
  EXPECT_EQ(Round(), DraftOutcome::kRefused);
  sessions_.refusal = absl::OkStatus();
  EXPECT_EQ(Round(), DraftOutcome::kAnswered);
}

TEST_F(AskPolicyTest, AFullServiceIsLeftAloneAfterAWhile) {
  sessions_.refusal = absl::ResourceExhaustedError("full");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Round(), DraftOutcome::kRefused);
  EXPECT_EQ(Round(), DraftOutcome::kBreakerOpen);
  EXPECT_EQ(sessions_.opens, 3);
}

TEST_F(AskPolicyTest, ARequestThatDoesNotFitIsNotAskedForAgain) {
  for (const absl::Status& unfit :
       {absl::UnimplementedError("mode"), absl::InvalidArgumentError("field"),
        absl::NotFoundError("datastore"),
        absl::FailedPreconditionError("another tokenizer")}) {
    Make();
    const int before = sessions_.opens;
    sessions_.refusal = unfit;
    for (int i = 0; i < 50; ++i) EXPECT_EQ(Round(), DraftOutcome::kRefused);
    EXPECT_EQ(sessions_.opens, before + 1);
    EXPECT_EQ(state_, CircuitBreaker::State::kClosed) << "the service is well";
  }
}

TEST_F(AskPolicyTest, ASessionThatExpiredUnaskedIsNoFailure) {
  policy_->OpenAhead();
  sessions_.listener->OnFailed(absl::DeadlineExceededError("said nothing"));
  EXPECT_EQ(Round(), DraftOutcome::kAnswered);
  EXPECT_EQ(sessions_.opens, 2);
}

TEST_F(AskPolicyTest, AnAnswerToNoQuestionEndsTheSession) {
  sessions_.off_by = 1;
  EXPECT_EQ(Round(), DraftOutcome::kBroken);
  EXPECT_EQ(sessions_.live, 0);
}

TEST_F(AskPolicyTest, FailuresFromBeforeTheBreakerOpenedDoNotCount) {
  AskPolicy other(*service_, [] { return DraftOpen(); });
  sessions_.at_once = false;
  other.OpenAhead();
  const std::shared_ptr<DraftListener> old = sessions_.listener;
  sessions_.at_once = true;
  sessions_.failure = absl::InternalError("broken");
  for (int i = 0; i < 3; ++i) Round();
  sessions_.failure = absl::OkStatus();
  now_ += breaker_.first_backoff;
  // The probe succeeds; failures of the old session are ignored.
  EXPECT_EQ(Round(), DraftOutcome::kAnswered);
  for (int i = 0; i < 2; ++i) {
    sessions_.failure = absl::InternalError("broken");
    Round();
  }
  old->OnFailed(absl::UnavailableError("gone"));
  sessions_.failure = absl::OkStatus();
  EXPECT_TRUE(other.Begin());
  EXPECT_EQ(state_, CircuitBreaker::State::kClosed);
}

}  // namespace
}  // namespace foretoken::orchestrator
