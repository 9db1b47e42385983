#include "services/verifier/core/admission.h"

#include <string>
#include <vector>

#include "common/infer/kv_cache.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_backend.h"
#include "tests/support/status_matchers.h"

namespace foretoken::verifier {
namespace {

using ::foretoken::testing::FakeBackend;
using ::foretoken::testing::FakeBackendOptions;
using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kPages = 6;
constexpr int32_t kReserve = 5;
// A text that takes half of the cache, with the room for its round.
constexpr int64_t kHalf = kPages / 2 * kKvPageTokens - kReserve;
// A length that takes a page more.
constexpr int64_t kGrown = kPages / 2 * kKvPageTokens + 1;

FakeBackendOptions BackendOptionsOf() {
  FakeBackendOptions options;
  options.pages = kPages;
  return options;
}

class AdmissionTest : public ::testing::Test {
 protected:
  // A prompt of `length` tokens, which nothing has computed yet.
  Session& Add(const std::string& caller, int64_t length, double weight = 1) {
    Session session;
    session.request.caller = caller;
    session.request.weight = weight;
    session.request.prompt_length = length;
    session.request.max_length = 10 * length;
    session.tokens.assign(static_cast<size_t>(length), 3);
    admission_.NoteChange();
    return sessions_.Add(std::move(session));
  }
  void Admit() {
    std::vector<SessionFailure> failures;
    admission_.AdmitWaiting(failures);
    EXPECT_THAT(failures, IsEmpty());
  }
  // The client has its answer, and says nothing from now on.
  void LeaveIdle(Session& session) {
    session.prefill_reported = true;
    session.idle_since = now_;
  }
  int64_t free_pages() const { return backend_.kv_usage().pages_free; }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  const Clock clock_ = [this] { return now_; };
  const AdmissionOptions options_{kReserve, absl::Seconds(2)};
  FakeBackend backend_{BackendOptionsOf()};
  Sessions sessions_{100};
  PassShares shares_{256, 64};
  Admission admission_{options_, backend_, sessions_, shares_, clock_};
};

TEST_F(AdmissionTest, ATextFitsIfTheEmptyCacheHoldsIt) {
  FORETOKEN_EXPECT_OK(admission_.CheckFits(kPages * kKvPageTokens));
  EXPECT_THAT(
      admission_.CheckFits(kPages * kKvPageTokens + 1),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than")));
}

TEST_F(AdmissionTest, SessionsAreAdmittedInOrderWhileThereIsRoom) {
  const Session& first = Add("a", kHalf);
  const Session& second = Add("a", kHalf);
  Session& third = Add("a", kHalf);
  EXPECT_TRUE(admission_.any_waiting());
  Admit();
  EXPECT_TRUE(first.kv.is_open());
  EXPECT_TRUE(second.kv.is_open());
  EXPECT_FALSE(third.kv.is_open());
  EXPECT_EQ(free_pages(), 0);
  EXPECT_EQ(admission_.admitted(), 2);
  EXPECT_EQ(admission_.totals().preemptions, 0);
}

TEST_F(AdmissionTest, NothingIsTriedAgainUntilSomethingChanges) {
  Session& first = Add("a", kHalf);
  Add("a", kHalf);
  Session& third = Add("a", kHalf);
  Admit();
  EXPECT_FALSE(admission_.may_admit());
  admission_.Release(first);
  EXPECT_TRUE(admission_.may_admit());
  FORETOKEN_ASSERT_OK(sessions_.Remove(first.id));
  Admit();
  EXPECT_TRUE(third.kv.is_open());
  EXPECT_FALSE(admission_.any_waiting());
  EXPECT_TRUE(admission_.may_admit());
}

TEST_F(AdmissionTest, ACallerWithLessTakesPagesOfTheYoungestOfOneWithMore) {
  Session& oldest = Add("a", kHalf);
  Session& youngest = Add("a", kHalf);
  Admit();
  Session& other = Add("b", kHalf);
  Admit();
  EXPECT_TRUE(oldest.kv.is_open());
  EXPECT_FALSE(youngest.kv.is_open());
  EXPECT_TRUE(youngest.was_preempted);
  EXPECT_TRUE(other.kv.is_open());
  EXPECT_GT(other.taken_room, 0);
  EXPECT_EQ(admission_.totals().preemptions, 1);
  // It replays once there is room, without preempting a session.
  admission_.Release(other);
  FORETOKEN_ASSERT_OK(sessions_.Remove(other.id));
  Admit();
  EXPECT_TRUE(youngest.kv.is_open());
  EXPECT_EQ(youngest.taken_room, 0);
  EXPECT_EQ(admission_.totals().replays, 1);
}

TEST_F(AdmissionTest, HoldingsCountByWeight) {
  Add("a", kHalf, /*weight=*/2);
  Session& youngest = Add("a", kHalf, /*weight=*/2);
  Admit();
  // Once admitted, it would hold as much for its weight as the other does.
  Session& other = Add("b", kHalf, /*weight=*/1);
  Admit();
  EXPECT_TRUE(youngest.kv.is_open());
  EXPECT_FALSE(other.kv.is_open());
  EXPECT_EQ(admission_.totals().preemptions, 0);
}

TEST_F(AdmissionTest, TheOldestSessionGivesWayToNoOtherCaller) {
  Session& oldest = Add("a", kPages * kKvPageTokens - kReserve);
  Admit();
  ASSERT_TRUE(oldest.kv.is_open());
  Session& other = Add("b", 10);
  Admit();
  EXPECT_TRUE(oldest.kv.is_open());
  EXPECT_FALSE(other.kv.is_open());
}

TEST_F(AdmissionTest, NobodyIsPreemptedInVain) {
  Session& oldest = Add("a", kHalf);
  Session& youngest = Add("a", kHalf);
  Admit();
  // What could be had is less than this one needs.
  Session& large = Add("b", kHalf + kKvPageTokens);
  Admit();
  EXPECT_TRUE(oldest.kv.is_open());
  EXPECT_TRUE(youngest.kv.is_open());
  EXPECT_FALSE(large.kv.is_open());
  EXPECT_EQ(admission_.totals().preemptions, 0);
}

TEST_F(AdmissionTest, AnIdleSessionGivesWayFirstEvenTheOldest) {
  Session& idle = Add("a", kHalf);
  Session& busy = Add("a", kHalf);
  Admit();
  LeaveIdle(idle);
  Session& next = Add("a", kHalf);
  now_ += absl::Seconds(2) - absl::Nanoseconds(1);
  EXPECT_EQ(admission_.NextIdle(), now_ + absl::Nanoseconds(1));
  Admit();
  EXPECT_TRUE(idle.kv.is_open());
  EXPECT_FALSE(next.kv.is_open());
  now_ += absl::Nanoseconds(1);
  Admit();
  EXPECT_FALSE(idle.kv.is_open());
  EXPECT_TRUE(busy.kv.is_open());
  EXPECT_TRUE(next.kv.is_open());
  // It has no work, so it waits for nothing.
  EXPECT_FALSE(admission_.any_waiting());
  EXPECT_EQ(admission_.NextIdle(), absl::InfiniteFuture());
}

TEST_F(AdmissionTest, OfIdleSessionsTheLongestIdleGivesWay) {
  Session& later = Add("a", kHalf);
  Session& earlier = Add("a", kHalf);
  Admit();
  LeaveIdle(earlier);
  now_ += absl::Seconds(1);
  LeaveIdle(later);
  now_ += absl::Seconds(5);
  Add("a", kHalf);
  Admit();
  EXPECT_TRUE(later.kv.is_open());
  EXPECT_FALSE(earlier.kv.is_open());
}

TEST_F(AdmissionTest, TheCallerWhoHoldsLeastIsNext) {
  Add("a", kHalf);
  Admit();
  Session& of_a = Add("a", kHalf);
  Session& of_b = Add("b", kHalf);
  Admit();
  EXPECT_FALSE(of_a.kv.is_open());
  EXPECT_TRUE(of_b.kv.is_open());
}

TEST_F(AdmissionTest, AmongEqualsAPreemptedSessionIsNext) {
  Session& fresh = Add("a", kHalf);
  Session& preempted = Add("b", kHalf);
  preempted.was_preempted = true;
  Add("c", kHalf).was_preempted = true;
  Admit();
  EXPECT_FALSE(fresh.kv.is_open());
  EXPECT_TRUE(preempted.kv.is_open());
}

TEST_F(AdmissionTest, GrowingTakesFromTheYoungestOfTheSameCaller) {
  Session& oldest = Add("a", kHalf);
  Session& youngest = Add("a", kHalf);
  Admit();
  FORETOKEN_EXPECT_OK(admission_.Reserve(oldest, kGrown));
  EXPECT_TRUE(oldest.kv.is_open());
  EXPECT_EQ(oldest.kv.room(), kGrown);
  EXPECT_FALSE(youngest.kv.is_open());
  EXPECT_TRUE(youngest.was_preempted);
}

TEST_F(AdmissionTest, TheYoungestGivesWayItselfWhenItGrows) {
  Session& oldest = Add("a", kHalf);
  Session& youngest = Add("a", kHalf);
  Admit();
  FORETOKEN_EXPECT_OK(admission_.Reserve(youngest, kGrown));
  EXPECT_TRUE(oldest.kv.is_open());
  EXPECT_FALSE(youngest.kv.is_open());
}

TEST_F(AdmissionTest, TheOldestTakesFromAnybodyRatherThanStarve) {
  Session& oldest = Add("a", kHalf);
  Session& other = Add("b", kHalf);
  Admit();
  FORETOKEN_EXPECT_OK(admission_.Reserve(oldest, kGrown));
  EXPECT_TRUE(oldest.kv.is_open());
  EXPECT_FALSE(other.kv.is_open());
}

TEST_F(AdmissionTest,
       GrowingTakesFromACallerWhoHoldsMoreButNotFromOneWithLess) {
  constexpr int64_t kThird = kPages / 3 * kKvPageTokens - kReserve;
  constexpr int64_t kThirdGrown = kPages / 3 * kKvPageTokens + 1;
  Session& first = Add("a", kThird);
  Session& other = Add("b", kThird);
  Session& second = Add("a", kThird);
  Admit();
  FORETOKEN_EXPECT_OK(admission_.Reserve(second, kThirdGrown));
  EXPECT_TRUE(other.kv.is_open());
  EXPECT_FALSE(second.kv.is_open());
  Admit();
  ASSERT_TRUE(second.kv.is_open());
  FORETOKEN_EXPECT_OK(admission_.Reserve(other, kThirdGrown));
  EXPECT_TRUE(other.kv.is_open());
  EXPECT_TRUE(first.kv.is_open());
  EXPECT_FALSE(second.kv.is_open());
}

TEST_F(AdmissionTest, AloneASessionKeepsItsPagesWhenItCannotGrow) {
  Session& only = Add("a", kHalf);
  Admit();
  EXPECT_THAT(admission_.Reserve(only, kPages * kKvPageTokens + 1),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("")));
  EXPECT_TRUE(only.kv.is_open());
  EXPECT_FALSE(only.was_preempted);
}

TEST_F(AdmissionTest, WhatDoesNotFitIntoTheEmptyCacheFails) {
  const SessionId id = Add("a", kPages * kKvPageTokens + 1).id;
  std::vector<SessionFailure> failures;
  admission_.AdmitWaiting(failures);
  ASSERT_THAT(failures, SizeIs(1));
  EXPECT_EQ(failures[0].session, id);
  EXPECT_TRUE(absl::IsResourceExhausted(failures[0].status));
  EXPECT_EQ(sessions_.size(), 0);
}

TEST_F(AdmissionTest, AloneALongTextDoesWithoutTheReserve) {
  Session& only = Add("a", kPages * kKvPageTokens - 1);
  Admit();
  EXPECT_TRUE(only.kv.is_open());
}

TEST_F(AdmissionTest, APromptThatIsGivenUpCountsForAWhile) {
  Add("a", kHalf);
  Session& youngest = Add("a", kHalf);
  Admit();
  const auto try_and_give_up = [&] {
    Session& other = Add("b", kHalf);
    Admit();
    const bool admitted = other.kv.is_open();
    admission_.NoteGivenUp(other);
    admission_.Release(other);
    EXPECT_TRUE(sessions_.Remove(other.id).ok());
    admission_.NoteChange();
    Admit();
    return admitted;
  };
  EXPECT_TRUE(try_and_give_up());
  EXPECT_TRUE(youngest.kv.is_open());
  EXPECT_FALSE(try_and_give_up());
  EXPECT_EQ(admission_.totals().preemptions, 1);
  now_ += absl::Seconds(11);
  EXPECT_TRUE(try_and_give_up());
  EXPECT_EQ(admission_.totals().preemptions, 2);
}

}  // namespace
}  // namespace foretoken::verifier
