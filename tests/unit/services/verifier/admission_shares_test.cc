#include <string>
#include <utility>
#include <vector>

#include "common/infer/kv_cache.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/verifier/core/admission.h"
#include "tests/support/fake_backend.h"
#include "tests/support/status_matchers.h"

namespace foretoken::verifier {
namespace {

using ::testing::IsEmpty;

// Sessions over 32 pages, admitted by hand, and a clock that stands still.
class AdmissionSharesTest : public ::testing::Test {
 protected:
  static testing::FakeBackendOptions BackendOptions() {
    testing::FakeBackendOptions options;
    options.pages = 32;
    options.max_rows = 2048;
    options.vocab_size = 64;
    return options;
  }

  // A waiting session whose text fills `pages`, the first `common` of them with
  // the same tokens for every session of the caller.
  Session& Add(const std::string& caller, int64_t pages, int64_t common = 0) {
    Session session;
    session.request.caller = caller;
    session.request.cache_scope = scope_.empty() ? caller : scope_;
    session.tokens.assign(pages * kKvPageTokens, 2 + next_++);
    std::fill_n(session.tokens.begin(), common * kKvPageTokens, 1);
    session.request.prompt_length = session.length();
    session.request.max_length = session.length() + 1;
    admission_.NoteChange();
    return sessions_.Add(std::move(session));
  }

  void Admit() {
    std::vector<SessionFailure> failures;
    admission_.AdmitWaiting(failures);
    EXPECT_THAT(failures, IsEmpty());
  }

  // Admits and reads one more session.
  Session& AddRead(const std::string& caller, int64_t pages,
                   int64_t common = 0) {
    Session& session = Add(caller, pages, common);
    Admit();
    EXPECT_TRUE(session.kv.is_open());
    Read(session);
    return session;
  }

  // Computes the rest of the text; the session has work left.
  void Read(Session& session) {
    const auto left =
        absl::MakeConstSpan(session.tokens).subspan(session.kv.length());
    std::vector<int32_t> parents, rows;
    for (int32_t i = 0; i < std::ssize(left); ++i) {
      parents.push_back(i - 1);
      rows.push_back(i);
    }
    PassSession share = session.kv.Share();
    share.tokens = left;
    share.parents = parents;
    share.outputs = RowOutputs::kNone;
    PassResult result;
    FORETOKEN_ASSERT_OK(backend_.Forward({share}, result));
    FORETOKEN_ASSERT_OK(session.kv.Commit(rows, session.tokens));
  }

  void GiveUp(Session& session) {
    admission_.NoteGivenUp(session);
    FORETOKEN_ASSERT_OK(sessions_.Remove(session.id));
    admission_.NoteChange();
  }

  int64_t preemptions() const { return admission_.totals().preemptions; }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  const Clock clock_ = [this] { return now_; };
  testing::FakeBackend backend_{BackendOptions()};
  Sessions sessions_{64};
  PassShares shares_{2048, 2048};
  Admission admission_{{.reserve = 1}, backend_, sessions_, shares_, clock_};
  TokenId next_ = 0;
  std::string scope_;  // of all callers, if not empty
};

TEST_F(AdmissionSharesTest, PagesThatACallersSessionsShareCountOnce) {
  std::vector<Session*> sharing;
  for (int i = 0; i < 4; ++i) sharing.push_back(&AddRead("sharing", 10, 9));
  Session& large = AddRead("large", 15);
  ASSERT_EQ(backend_.kv_usage().pages_free, 32 - 13 - 15);

  // It is not the caller with 4 x 10 pages listed that holds most.
  Add("small", 6);
  Admit();
  EXPECT_FALSE(large.kv.is_open());
  for (Session* const session : sharing) EXPECT_TRUE(session->kv.is_open());
  EXPECT_EQ(preemptions(), 1);
}

TEST_F(AdmissionSharesTest,
       ASessionClaimsOnlyPagesThatItsCallerDoesNotHoldYet) {
  for (int i = 0; i < 3; ++i) AddRead("sharing", 10, 9);
  AddRead("two", 9);
  Session& second = AddRead("two", 9);
  ASSERT_EQ(backend_.kv_usage().pages_free, 2);

  // 12 and 3 pages, against 18.
  Session& fourth = Add("sharing", 12, 9);
  Admit();
  EXPECT_TRUE(fourth.kv.is_open());
  EXPECT_FALSE(second.kv.is_open());
  EXPECT_EQ(preemptions(), 1);
  // Nor does it go back: 9 and 9 against 15.
  admission_.NoteChange();
  Admit();
  EXPECT_FALSE(second.kv.is_open());
  EXPECT_EQ(preemptions(), 1);
}

TEST_F(AdmissionSharesTest, NobodyGivesWayWherePagesWouldStayWithOthers) {
  // The oldest session never gives way, so that the other two would give back
  // one page each.
  for (int i = 0; i < 3; ++i) AddRead("sharing", 15, 14);
  AddRead("other", 10);
  ASSERT_EQ(backend_.kv_usage().pages_free, 5);
  Session& large = Add("large", 10);
  Admit();
  EXPECT_FALSE(large.kv.is_open());
  EXPECT_EQ(preemptions(), 0);
  GiveUp(large);
  // One more page is all that two callers must find.
  Session& fits = Add("fits", 7);
  Admit();
  EXPECT_TRUE(fits.kv.is_open());
  EXPECT_EQ(preemptions(), 2);
}

// Callers with several sessions of one prompt each, who would hold the same.
TEST_F(AdmissionSharesTest, EqualCallersDoNotTakeRoomInTurns) {
  AddRead("oldest", 2);
  for (int i = 0; i < 5; ++i) {
    AddRead("one", 10, 9);
    if (i < 4) AddRead("two", 10, 9);
  }
  AddRead("rest", backend_.kv_usage().pages_free);
  Session& last = Add("two", 10, 9);
  Admit();
  EXPECT_FALSE(last.kv.is_open());
  EXPECT_EQ(preemptions(), 0);
}

// Two callers share one scope. The common pages of the other caller count in a
// new session's claim, because it will hold them alone once the other gives
// way.
TEST_F(AdmissionSharesTest, CallersThatShareAScopeDoNotTakeRoomInTurns) {
  scope_ = "common";
  AddRead("oldest", 5);
  Session& one = AddRead("one", 20, 12);
  Session& two = Add("two", 20, 12);
  Admit();
  EXPECT_TRUE(one.kv.is_open());
  EXPECT_FALSE(two.kv.is_open());
  EXPECT_EQ(preemptions(), 0);
}

TEST_F(AdmissionSharesTest, NobodyGivesWayForPagesThatTheNewSessionWouldList) {
  scope_ = "common";
  AddRead("oldest", 7);
  AddRead("two sessions", 5);
  Session& younger = AddRead("two sessions", 20, 12);
  ASSERT_EQ(backend_.kv_usage().pages_free, 0);
  // 21 against 25, but eight pages would be free for it where it wants nine.
  Session& waiting = Add("waiting", 21, 12);
  Admit();
  EXPECT_TRUE(younger.kv.is_open());
  EXPECT_FALSE(waiting.kv.is_open());
  EXPECT_EQ(preemptions(), 0);
}

// What a caller had others preempted for counts as its own for a while after it
// was given up unread.
class GivenUpTest : public AdmissionSharesTest {
 protected:
  GivenUpTest() {
    AddRead("oldest", 1);
    for (int i = 0; i < 5; ++i) many_.push_back(&AddRead("many", 5));
  }

  void Ready() {
    admission_.NoteChange();
    Admit();
    for (Session* const session : many_) {
      ASSERT_TRUE(session->kv.is_open());
      if (session->is_prefilling()) Read(*session);
    }
  }

  // The number of sessions that another prompt of the caller costs others.
  int64_t CostOfOneMore() {
    const int64_t before = preemptions();
    Session& session = Add("hostile", 16);
    Admit();
    GiveUp(session);
    return preemptions() - before;
  }

  std::vector<Session*> many_;
};

TEST_F(GivenUpTest, CountsForAWhile) {
  EXPECT_EQ(CostOfOneMore(), 2);
  Ready();
  EXPECT_EQ(CostOfOneMore(), 0);
  now_ += absl::Seconds(11);
  Ready();
  EXPECT_EQ(CostOfOneMore(), 2);
}

TEST_F(GivenUpTest, CountsAlsoIfItLostItsPagesFirst) {
  Session& hostile = Add("hostile", 16);
  Admit();
  ASSERT_TRUE(hostile.kv.is_open());
  ASSERT_EQ(preemptions(), 2);
  Session& third = Add("third", 3);
  Admit();
  ASSERT_FALSE(hostile.kv.is_open());
  GiveUp(hostile);
  GiveUp(third);
  Ready();
  EXPECT_EQ(CostOfOneMore(), 0);
}

// Preempting idle sessions is not charged: their pages were unused.
TEST_F(GivenUpTest, IdleSessionsThatGaveWayDoNotCount) {
  Session& idle = AddRead("hostile", 3);
  idle.prefill_reported = true;
  idle.idle_since = now_;
  now_ += absl::Seconds(3);
  Session& hostile = Add("hostile", 30);
  Admit();
  ASSERT_FALSE(hostile.kv.is_open());
  ASSERT_FALSE(idle.kv.is_open());
  GiveUp(hostile);
  Ready();
  EXPECT_EQ(CostOfOneMore(), 2);
}

// Nor does a page that the caller's other sessions list anyway.
TEST_F(GivenUpTest, OnlyWhatItClaimedCounts) {
  AddRead("hostile", 3, 2);
  Session& more = Add("hostile", 6, 2);
  Admit();
  ASSERT_TRUE(more.kv.is_open());
  ASSERT_EQ(preemptions(), 1);
  EXPECT_EQ(more.taken_room, 4 * kKvPageTokens);
}

TEST_F(GivenUpTest, ATextThatWasReadCostsNothingMore) {
  Session& honest = Add("hostile", 16);
  Admit();
  Read(honest);
  admission_.Release(honest);  // it has ended
  GiveUp(honest);
  Ready();
  EXPECT_EQ(CostOfOneMore(), 2);
}

}  // namespace
}  // namespace foretoken::verifier
