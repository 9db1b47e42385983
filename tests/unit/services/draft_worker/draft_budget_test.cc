// DraftEngine and the time that a draft has.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/services/draft_worker/draft_fixture.h"

namespace foretoken::draft_worker {
namespace {

using ::foretoken::testing::FakeBackendOptions;
using ::testing::ElementsAreArray;

TEST(DraftBudgetTest, ASpentBudgetReturnsWhatThereIs) {
  FakeBackendOptions backend_options;
  DraftEngineOptions options;
  absl::Time now = absl::UnixEpoch();
  int reads = 0;
  // Every look at the clock takes a millisecond, so a pass takes one.
  DraftEngine engine(options,
                     std::make_unique<testing::FakeBackend>(backend_options),
                     [&] { return now + absl::Milliseconds(++reads); });
  const auto key = engine.Open(MakeOpen("draft_model:gamma=20", kPrompt));
  ASSERT_TRUE(key.ok());
  DraftRound round = MakeRound(6, {20});
  round.budget = absl::Milliseconds(30);
  ASSERT_TRUE(engine.Submit(*key, round).ok());
  DraftReport report;
  while (report.answers.empty()) report = engine.RunPass();
  const DraftTree& tree = report.answers[0].answer.tree;
  EXPECT_GT(tree.size(), 0);
  EXPECT_LT(tree.size(), 20);
  // With room for a late pass and the way back.
  EXPECT_LE(report.answers[0].answer.draft_time, absl::Milliseconds(25));
  EXPECT_THAT(tree.tokens, ElementsAreArray(Decode(Joined(kPrompt, {20}), 5,
                                                   tree.size(), {})));
}

// An answer that comes late is lost: where a pass is known to be too long,
// there is none, and it is tried again now and then.
TEST(DraftBudgetTest, PassesThatAreTooLongForTheBudgetAreRareAttempts) {
  absl::Time now = absl::UnixEpoch();
  DraftEngine engine({}, std::make_unique<testing::FakeBackend>(RoomyBackend()),
                     [&] { return now += absl::Milliseconds(10); });
  const auto key = engine.Open(MakeOpen("draft_model:gamma=5", kPrompt));
  ASSERT_TRUE(key.ok());
  std::vector<int> sizes;
  for (int64_t length = 6; length < 18; ++length) {
    DraftRound round = MakeRound(length, {20});
    round.budget = absl::Milliseconds(20);
    ASSERT_TRUE(engine.Submit(*key, round).ok());
    DraftReport report;
    while (report.answers.empty()) report = engine.RunPass();
    sizes.push_back(report.answers[0].answer.tree.size());
  }
  EXPECT_EQ(sizes.front(), 1);  // nothing was known
  EXPECT_EQ(sizes[1], 0);
  EXPECT_GE(std::count(sizes.begin(), sizes.end(), 1), 2);
  EXPECT_GE(std::count(sizes.begin(), sizes.end(), 0), 8);
}

// Passes of 1 ms, in rounds whose tokens take `per_token` each. The passes of
// the drafts, by round.
std::vector<int> PassesOf(const std::string& mode, absl::Duration per_token,
                          bool says_so) {
  auto backend = std::make_unique<testing::FakeBackend>(RoomyBackend());
  const testing::FakeBackend& fake = *backend;
  absl::Time now = absl::UnixEpoch();
  int64_t seen = 0;
  const auto clock = [&] {
    now += absl::Milliseconds(fake.forwards() -
                              std::exchange(seen, fake.forwards()));
    return now;
  };
  DraftEngine engine({}, std::move(backend), clock);
  const auto key = engine.Open(MakeOpen(mode, kPrompt));
  EXPECT_TRUE(key.ok());
  std::vector<int> passes;
  Tokens text = kPrompt;
  for (int i = 0; i < 6; ++i) {
    text.push_back(NextToken(text, 5, {}));
    DraftRound round =
        MakeRound(static_cast<int64_t>(text.size()), {text.back()});
    round.budget = absl::Hours(1);
    round.row_ms = {0.01f};
    if (says_so) round.token_time = per_token;
    EXPECT_TRUE(engine.Submit(*key, round).ok());
    const int64_t before = fake.forwards();
    DraftReport report;
    while (report.answers.empty()) report = engine.RunPass();
    passes.push_back(static_cast<int>(fake.forwards() - before));
    EXPECT_FALSE(report.answers[0].answer.shortened);
    now += per_token;
  }
  return passes;
}

TEST(DraftBudgetTest, ADraftHasThePassesThatPay) {
  for (const std::string mode : {"auto", "draft_model", "ouroboros"}) {
    SCOPED_TRACE(mode);
    for (const bool says_so : {false, true}) {
      EXPECT_THAT(PassesOf(mode, absl::Microseconds(10), says_so),
                  ::testing::Each(1));
      const std::vector<int> slow = PassesOf(mode, absl::Hours(1), says_so);
      // The pace of a session's rounds is not known before the second one.
      for (size_t i = says_so ? 0 : 1; i < slow.size(); ++i) {
        EXPECT_GT(slow[i], 2) << i;
      }
    }
  }
}

TEST(DraftBudgetTest, ADraftThatItsTimeCutShortSaysSo) {
  for (const std::string mode :
       {"draft_model:gamma=20", "ouroboros:gamma=40,window=3,beta=3"}) {
    absl::Time now = absl::UnixEpoch();
    DraftEngine engine({},
                       std::make_unique<testing::FakeBackend>(RoomyBackend()),
                       [&] { return now += absl::Milliseconds(1); });
    const auto key = engine.Open(MakeOpen(mode, kPrompt));
    ASSERT_TRUE(key.ok());
    const auto ask = [&](int64_t length, absl::Duration budget,
                         int32_t max_nodes) {
      DraftRound round = MakeRound(length, {20}, max_nodes);
      round.budget = budget;
      EXPECT_TRUE(engine.Submit(*key, round).ok());
      DraftReport report;
      while (report.answers.empty()) report = engine.RunPass();
      return report.answers[0].answer.shortened;
    };
    EXPECT_FALSE(ask(6, absl::Hours(1), 64)) << mode;
    EXPECT_TRUE(ask(7, absl::Milliseconds(10), 64)) << mode;
    EXPECT_TRUE(ask(8, absl::Microseconds(1), 64)) << mode;
    EXPECT_FALSE(ask(9, absl::Microseconds(1), 0)) << "none was wanted";
    EXPECT_FALSE(ask(10, absl::InfiniteDuration(), 64)) << mode;
  }
}

// A pass is long while someone's prompt is read in it, and that is not held
// against the drafts that follow.
TEST(DraftBudgetTest, OthersPrefillIsNotTakenForTheCostOfADraft) {
  DraftEngineOptions options;
  options.prefill_chunk = 16;
  auto backend = std::make_unique<testing::FakeBackend>(RoomyBackend());
  const testing::FakeBackend& fake = *backend;
  absl::Time now = absl::UnixEpoch();
  int64_t seen = 0;
  // Passes with text of another take 50 ms.
  const auto clock = [&] {
    if (std::exchange(seen, fake.forwards()) < fake.forwards()) {
      now += absl::Milliseconds(fake.last_pass_rows() > 16 ? 50 : 1);
    }
    return now;
  };
  DraftEngine engine(options, std::move(backend), clock);
  const auto key = engine.Open(MakeOpen("draft_model:gamma=2", kPrompt));
  ASSERT_TRUE(key.ok());
  const auto ask = [&](int64_t length) {
    DraftRound round = MakeRound(length, {20});
    round.budget = absl::Milliseconds(20);
    EXPECT_TRUE(engine.Submit(*key, round).ok());
    DraftReport report;
    while (report.answers.empty()) report = engine.RunPass();
    return report.answers[0].answer.tree.size();
  };
  EXPECT_EQ(ask(6), 2);
  const auto other =
      engine.Open(MakeOpen("draft_model:gamma=5", Tokens(120, 7)));
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(ask(7), 1) << "its first pass took all the time";
  EXPECT_EQ(ask(8), 0) << "the next one would as well";
  while (engine.HasWork()) engine.RunPass();
  EXPECT_EQ(ask(9), 2);
}

// It came while a pass of others was under way.
TEST(DraftBudgetTest, TheTimeOfARoundRunsFromItsArrival) {
  EngineFixture f;
  const SessionId key = f.Open(MakeOpen("draft_model:gamma=5", {1}));
  DraftRound round = MakeRound(2, {20});
  round.budget = absl::Milliseconds(20);
  ASSERT_TRUE(f.engine.Submit(key, round, f.now - absl::Milliseconds(30)).ok());
  f.RunAll();
  EXPECT_EQ(f.answers[key].tree.size(), 0);
  EXPECT_EQ(f.answers[key].draft_time, absl::Milliseconds(30));
}

TEST(DraftBudgetTest, NoBudgetAtAllRunsNoPass) {
  EngineFixture f;
  const SessionId key = f.Open(MakeOpen("draft_model:gamma=5", {1}));
  DraftRound round = MakeRound(2, {20});
  round.budget = absl::ZeroDuration();
  EXPECT_EQ(f.Ask(key, round).tree.size(), 0);
  // The session goes on.
  EXPECT_THAT(f.Ask(key, MakeRound(3, {21})).tree.tokens,
              ElementsAreArray(Decode({1, 20, 21}, 1, 5, {})));
}

}  // namespace
}  // namespace foretoken::draft_worker
