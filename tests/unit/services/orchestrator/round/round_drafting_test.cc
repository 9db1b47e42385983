#include "services/orchestrator/core/round/round_drafting.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::orchestrator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// What a fake source answers, and what it was told.
struct Script {
  DrafterId id = DrafterId::kFused;
  bool drafts = true;
  bool needs_rows = false;
  bool reads_candidates = false;
  bool reads_hints = false;
  bool reads_costs = false;
  bool has_text = true;
  std::optional<TextRead> text_read;
  DraftOutcome outcome = DraftOutcome::kAnswered;
  SourceDraft draft;
  absl::Duration takes;  // of the fake clock, in Collect

  DraftOpen opened;
  std::vector<DraftRound> asked;
  absl::Time deadline;
};

class FakeSource final : public DraftSource {
 public:
  FakeSource(Script& script, absl::Time& now) : script_(script), now_(now) {}
  DrafterId id() const override { return script_.id; }
  bool drafts() const override { return script_.drafts; }
  bool needs_rows() const override { return script_.needs_rows; }
  bool reads_candidates() const override { return script_.reads_candidates; }
  bool reads_hints() const override { return script_.reads_hints; }
  bool reads_costs() const override { return script_.reads_costs; }
  bool has_text() const override { return script_.has_text; }
  std::optional<TextRead> TakeTextRead() override {
    return std::exchange(script_.text_read, std::nullopt);
  }
  void Start(const DraftOpen& open, absl::Span<const TokenId> text) override {
    script_.opened = open;
    script_.opened.tokens.assign(text.begin(), text.end());
  }
  void Ask(const DraftRound& round, absl::Span<const TokenId> text) override {
    EXPECT_EQ(static_cast<int64_t>(text.size()), round.length);
    script_.asked.push_back(round);
  }
  DraftOutcome Collect(absl::Time deadline, SourceDraft& draft) override {
    script_.deadline = deadline;
    now_ += script_.takes;
    if (script_.outcome == DraftOutcome::kAnswered) draft = script_.draft;
    return script_.outcome;
  }

 private:
  Script& script_;
  absl::Time& now_;
};

class RoundDraftingTest : public ::testing::Test {
 protected:
  RoundDraftingTest() {
    options_.clock = [this] { return now_; };
  }

  RoundDrafting& Make(std::vector<Script*> scripts) {
    DraftSources sources;
    for (Script* script : scripts) {
      sources.push_back(std::make_unique<FakeSource>(*script, now_));
    }
    drafting_ =
        std::make_unique<RoundDrafting>(std::move(sources), 100, options_);
    drafting_->Start(DraftOpen(), text_);
    return *drafting_;
  }

  void Commit(std::vector<TokenId> tokens, const RoundResult* round = nullptr,
              absl::Duration verify_time = absl::ZeroDuration()) {
    text_.insert(text_.end(), tokens.begin(), tokens.end());
    CommittedText committed;
    committed.tokens = absl::MakeConstSpan(text_).last(tokens.size());
    committed.text = text_;
    committed.max_depth = max_depth_;
    committed.round = round;
    committed.verify_time = verify_time;
    committed.arm = arm_;
    drafting_->Commit(committed);
  }

  static Script Says(DrafterId id,
                     std::vector<std::pair<TokenId, float>> path) {
    Script script;
    script.id = id;
    int32_t at = kRootParent;
    for (const auto& [token, prob] : path) {
      at = script.draft.tree.Add(token, at, prob);
    }
    return script;
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  DraftingOptions options_;
  std::vector<TokenId> text_ = {1, 2, 3};
  int64_t max_depth_ = 50;
  DraftArm arm_ = DraftArm::kNone;  // that the verifier announces
  std::unique_ptr<RoundDrafting> drafting_;
};

TEST_F(RoundDraftingTest, AllAreAskedAndWhatCameIsMerged) {
  Script crest = Says(DrafterId::kCrest, {{5, 0.5f}, {6, 0.4f}});
  Script fused = Says(DrafterId::kFused, {{5, 0.9f}, {7, 0.3f}});
  Make({&crest, &fused});
  Commit({4});
  for (const Script* script : {&crest, &fused}) {
    EXPECT_THAT(script->opened.tokens, ElementsAre(1, 2, 3));
    ASSERT_EQ(script->asked.size(), 1u);
    EXPECT_THAT(script->asked[0].committed, ElementsAre(4));
    EXPECT_EQ(script->asked[0].length, 4);
    EXPECT_EQ(script->asked[0].max_nodes, 64);
  }
  const TokenTree& tree = drafting_->Draft();
  EXPECT_THAT(tree.tokens(), ElementsAre(5, 6, 7));
  EXPECT_THAT(tree.credited(), ElementsAre(1, 0, 1));
  EXPECT_EQ(drafting_->report()[0].nodes, 2);
  EXPECT_EQ(drafting_->report()[1].nodes, 2);
}

TEST_F(RoundDraftingTest, WhoHasNoDraftIsReportedAndTheRestGoesOn) {
  Script late = Says(DrafterId::kDraftModel, {{8, 0.9f}});
  late.outcome = DraftOutcome::kLate;
  Script garbage = Says(DrafterId::kCrest, {{8, 0.9f}});
  garbage.draft.tree.parents[0] = 3;
  Script good = Says(DrafterId::kFused, {{5, 0.1f}, {-4, 0.1f}});
  Make({&late, &garbage, &good});
  Commit({4});
  EXPECT_THAT(drafting_->Draft().tokens(), ElementsAre(5));
  EXPECT_EQ(drafting_->report()[0].outcome, DraftOutcome::kLate);
  EXPECT_EQ(drafting_->report()[1].outcome, DraftOutcome::kBroken);
  EXPECT_EQ(drafting_->report()[2].outcome, DraftOutcome::kAnswered);
}

TEST_F(RoundDraftingTest, ARequestThatNamesItsModeWaitsForWholeDrafts) {
  options_.wait = {2.0, absl::Milliseconds(10), absl::Milliseconds(300),
                   4.0, absl::Seconds(1),       absl::Seconds(20)};
  Script source = Says(DrafterId::kDraftModel, {{5, 0.9f}});
  Make({&source});
  now_ += absl::Seconds(3);  // prefill
  const RoundResult round;
  const auto waits = [&] {
    Commit({4}, source.asked.empty() ? nullptr : &round,
           absl::Milliseconds(10));
    const absl::Time asked = now_;
    drafting_->Draft();
    EXPECT_EQ(source.asked.back().budget, source.deadline - asked);
    return source.deadline - asked;
  };
  source.draft.latency = absl::Milliseconds(600);
  EXPECT_EQ(waits(), absl::Seconds(12)) << "it reads the prompt first";
  source.draft.latency = absl::Milliseconds(200);
  EXPECT_EQ(waits(), absl::Milliseconds(2400)) << "four times the only draft";
  EXPECT_EQ(waits(), absl::Milliseconds(2000)) << "the average falls";
  for (int i = 0; i < 20; ++i) waits();
  EXPECT_EQ(waits(), absl::Seconds(1)) << "the floor";
  // A source that has become slower is waited for longer and longer.
  source.outcome = DraftOutcome::kLate;
  source.takes = absl::Seconds(10);
  for (int i = 0; i < 20; ++i) waits();
  EXPECT_EQ(waits(), absl::Seconds(20)) << "the cap";
}

TEST_F(RoundDraftingTest, NoDraftIsWaitedForPastTheRequestsDeadline) {
  Script source = Says(DrafterId::kDraftModel, {{5, 0.9f}});
  for (const bool economical : {false, true}) {
    options_.economical = economical;
    options_.deadline = now_ + absl::Milliseconds(7);
    Make({&source});
    Commit({4});
    drafting_->Draft();
    EXPECT_EQ(source.deadline, options_.deadline);
    now_ += absl::Milliseconds(9);
    Commit({4});
    EXPECT_EQ(source.asked.back().budget, absl::ZeroDuration());
  }
}

TEST_F(RoundDraftingTest, DraftsThatWereLateOrCutOffAreShortened) {
  Script late = Says(DrafterId::kCrest, {});
  late.outcome = DraftOutcome::kLate;
  Script cut = Says(DrafterId::kDraftModel, {{5, 0.9f}});
  cut.draft.shortened = true;
  Script broken = Says(DrafterId::kNgramTrie, {});
  broken.outcome = DraftOutcome::kBroken;
  Script whole = Says(DrafterId::kFused, {{5, 0.9f}});
  Make({&late, &cut, &broken, &whole});
  Commit({4});
  drafting_->Draft();
  std::vector<bool> shortened;
  for (const SourceReport& report : drafting_->report()) {
    shortened.push_back(report.shortened);
  }
  EXPECT_THAT(shortened, ElementsAre(true, true, false, false));
}

TEST_F(RoundDraftingTest, TheDeadlineOfAnEconomicalRequestFollowsThePass) {
  options_.economical = true;
  options_.wait = {2.0, absl::Milliseconds(10), absl::Milliseconds(300)};
  Script source = Says(DrafterId::kFused, {});
  Make({&source});
  Commit({4});
  drafting_->Draft();
  EXPECT_EQ(source.deadline - now_, absl::Milliseconds(300)) << "unknown: cap";
  RoundResult round;
  for (const auto& [verify_ms, want_ms] :
       std::vector<std::pair<int, int>>{{40, 80}, {1000, 300}}) {
    Make({&source});
    Commit({4});
    drafting_->Draft();
    Commit({5}, &round, absl::Milliseconds(verify_ms));
    drafting_->Draft();
    EXPECT_EQ(source.deadline - now_, absl::Milliseconds(want_ms));
    EXPECT_EQ(source.asked.back().budget, absl::Milliseconds(want_ms));
  }
  options_.costs = PassCosts({{1, 1.0}, {65, 4.0}});
  Make({&source});
  Commit({4});
  drafting_->Draft();
  EXPECT_EQ(source.deadline - now_, absl::Milliseconds(10)) << "the floor";
}

TEST_F(RoundDraftingTest, OnlyWhoReadsRowsGetsTheTree) {
  Script reader = Says(DrafterId::kOuroboros, {{5, 0.9f}});
  reader.needs_rows = true;
  Script other = Says(DrafterId::kFused, {{6, 0.1f}});
  Make({&reader, &other});
  Commit({4});
  const TokenTree& tree = drafting_->Draft();
  RoundResult round;
  round.path = {0};
  round.row_tokens = {5, 9, 8};
  Commit({5, 9}, &round);
  const VerifiedTree& verified = reader.asked.back().verified;
  EXPECT_THAT(verified.tree.tokens(), ElementsAre(5, 6));
  EXPECT_EQ(verified.tree.tokens().data(), tree.tokens().data()) << "a copy";
  EXPECT_THAT(verified.row_tokens, ElementsAre(5, 9, 8));
  EXPECT_THAT(verified.path, ElementsAre(0));
  EXPECT_TRUE(other.asked.back().verified.tree.empty());
  EXPECT_THAT(other.asked.back().verified.row_tokens, IsEmpty());
}

TEST_F(RoundDraftingTest, CandidatesAreAskedForAndPassedOnWhereTheyAreRead) {
  Script fused = Says(DrafterId::kFused, {{5, 0.9f}});
  fused.needs_rows = fused.reads_candidates = true;
  Make({&fused});
  Commit({4});
  drafting_->Draft();
  EXPECT_EQ(drafting_->candidates(), kMaxRowCandidates);
  RoundResult round;
  round.row_candidates = {{{5, 0.0f}, {6, -1.0f}}, {{9, 0.0f}}};
  Commit({7}, &round);
  EXPECT_THAT(fused.asked.back().verified.candidates.tokens,
              ElementsAre(5, 6, 9, -1));
  drafting_->Draft();
  // A verifier that answers with other rows than the tree's is not believed.
  round.row_candidates.pop_back();
  Commit({7}, &round);
  EXPECT_TRUE(fused.asked.back().verified.candidates.empty());
  // A source that is not asked for a draft has no use for them.
  max_depth_ = 0;
  Commit({7}, &round);
  drafting_->Draft();
  EXPECT_EQ(drafting_->candidates(), 0);
}

TEST_F(RoundDraftingTest, CandidatesAreNotAskedForWhereNobodyReadsThem) {
  Script broken = Says(DrafterId::kFused, {});
  broken.needs_rows = broken.reads_candidates = true;
  broken.outcome = DraftOutcome::kBreakerOpen;
  Script other = Says(DrafterId::kCrest, {{5, 0.9f}});
  Make({&other, &broken});
  Commit({4});
  drafting_->Draft();
  EXPECT_EQ(drafting_->candidates(), 0);
}

TEST_F(RoundDraftingTest, PhrasesGoToWhoKeepsThemWithTheNextCommit) {
  Script worker = Says(DrafterId::kOuroboros, {});
  worker.draft.phrases = {{1, 2}, {3, 4}};
  Script keeper;
  keeper.id = DrafterId::kOuroboros;
  keeper.drafts = false;
  Make({&worker, &keeper});
  EXPECT_EQ(drafting_->size(), 1);
  Commit({4});
  EXPECT_EQ(keeper.asked.back().max_nodes, 0);
  EXPECT_THAT(keeper.asked.back().phrases, IsEmpty());
  drafting_->Draft();
  worker.draft.phrases.clear();
  const RoundResult round;
  Commit({5}, &round);
  EXPECT_THAT(keeper.asked.back().phrases,
              ElementsAre(ElementsAre(1, 2), ElementsAre(3, 4)));
  EXPECT_THAT(worker.asked.back().phrases, IsEmpty());
  drafting_->Draft();
  Commit({6}, &round);
  EXPECT_THAT(keeper.asked.back().phrases, IsEmpty());
}

TEST_F(RoundDraftingTest, WithoutRoomNothingIsAskedFor) {
  Script source = Says(DrafterId::kFused, {{5, 0.9f}});
  Make({&source});
  max_depth_ = 0;
  Commit({4});
  EXPECT_EQ(source.asked.back().max_nodes, 0);
  EXPECT_TRUE(drafting_->Draft().empty());
  EXPECT_EQ(drafting_->report()[0].outcome, DraftOutcome::kNotAsked);
}

TEST_F(RoundDraftingTest, AnEconomicalRequestLeavesOutWhatDoesNotPay) {
  options_.economical = true;
  options_.estimates = std::make_shared<DraftEstimates>();
  Script slow = Says(DrafterId::kDraftModel, {{60, 0.9f}});
  slow.draft.latency = slow.takes = absl::Milliseconds(50);
  Script good = Says(DrafterId::kFused, {{5, 0.9f}});
  Make({&slow, &good});
  Commit({4});
  const RoundResult round;
  int slow_asked = 0, good_asked = 0;
  for (int i = 0; i < 200; ++i) {
    slow_asked += slow.asked.back().max_nodes > 0;
    good_asked += good.asked.back().max_nodes > 0;
    drafting_->Draft();
    Commit({5, 1}, &round, absl::Milliseconds(10));
  }
  EXPECT_EQ(good_asked, 200);
  // The first few, and now and then to see whether it got better.
  EXPECT_GE(slow_asked, 8 + 4);
  EXPECT_LE(slow_asked, 30);
}

// Requests are many and short: what one has learnt of the load holds for the
// next from its first round on, unless it is of the past.
TEST_F(RoundDraftingTest, AnEconomicalRequestStartsFromTheLoadOfOthers) {
  options_.economical = true;
  options_.estimates = std::make_shared<DraftEstimates>();
  options_.costs = PassCosts({{1, 10.0}, {16, 10.0}, {64, 58.0}});
  Script source = Says(DrafterId::kFused, {{5, 0.5f}});
  RoundResult busy;
  busy.stats.pass_rows = 32;
  busy.stats.pass_sessions = 32;
  busy.stats.pass_time = absl::Milliseconds(26);
  Make({&source});
  Commit({4});
  EXPECT_EQ(drafting_->Draft().draft_nodes(), 1) << "nothing is known";
  Commit({9}, &busy, absl::Milliseconds(26));
  EXPECT_EQ(drafting_->Draft().draft_nodes(), 0);
  Make({&source});
  Commit({4});
  EXPECT_EQ(drafting_->Draft().draft_nodes(), 0);
  now_ += absl::Seconds(2);
  Make({&source});
  Commit({4});
  EXPECT_EQ(drafting_->Draft().draft_nodes(), 1);
}

TEST_F(RoundDraftingTest, ShortRequestsTakeTurnsWithWhatDoesNotPay) {
  options_.economical = true;
  options_.estimates = std::make_shared<DraftEstimates>();
  Script slow = Says(DrafterId::kDraftModel, {{60, 0.9f}});
  slow.draft.latency = slow.takes = absl::Milliseconds(50);
  Script good = Says(DrafterId::kFused, {{5, 0.9f}});
  const RoundResult round;
  int asked = 0;
  for (int request = 0; request < 400; ++request) {
    Make({&slow, &good});
    Commit({4});
    asked += slow.asked.back().max_nodes > 0;
    drafting_->Draft();
    Commit({5, 1}, &round, absl::Milliseconds(10));
    drafting_->Draft();
  }
  // The first eight, and one in thirty-two.
  EXPECT_GE(asked, 8 + 4);
  EXPECT_LE(asked, 8 + 30);
}

TEST_F(RoundDraftingTest, AnEconomicalRequestTakesNoNodeAboveItsPrice) {
  options_.economical = true;
  options_.estimates = std::make_shared<DraftEstimates>();
  options_.costs = PassCosts({{1, 1.0}, {2, 2.0}});  // a row costs a pass
  Script source = Says(DrafterId::kFused, {{5, 0.9f}, {6, 0.8f}});
  Make({&source});
  Commit({4});
  EXPECT_TRUE(drafting_->Draft().empty());
  options_.costs = PassCosts({{1, 1.0}, {2, 1.1}});
  Make({&source});
  Commit({4});
  EXPECT_EQ(drafting_->Draft().draft_nodes(), 2);
}

class GuardedRoundDraftingTest : public RoundDraftingTest {
 protected:
  GuardedRoundDraftingTest() {
    options_.economical = true;
    options_.estimates = std::make_shared<DraftEstimates>();
  }
  const RoundResult round_;
};

TEST_F(GuardedRoundDraftingTest, UnderOffNoSourceIsAskedUntilItEnds) {
  Script source = Says(DrafterId::kFused, {{5, 0.9f}});
  Make({&source});
  Commit({4});
  EXPECT_EQ(drafting_->Draft().draft_nodes(), 1);
  ASSERT_EQ(source.asked.size(), 1u);
  arm_ = DraftArm::kOff;
  for (const TokenId token : {10, 11, 12}) {
    Commit({token, 9}, &round_);
    EXPECT_EQ(drafting_->arm(), DraftArm::kOff);
    EXPECT_TRUE(drafting_->Draft().empty());
    EXPECT_EQ(drafting_->report()[0].outcome, DraftOutcome::kNotAsked);
    EXPECT_EQ(drafting_->report()[0].nodes, 0);
  }
  EXPECT_EQ(source.asked.size(), 1u) << "told nothing either";
  arm_ = DraftArm::kWide;
  Commit({13}, &round_);
  EXPECT_EQ(drafting_->arm(), DraftArm::kWide);
  ASSERT_EQ(source.asked.size(), 2u);
  EXPECT_THAT(source.asked.back().committed,
              ElementsAre(10, 9, 11, 9, 12, 9, 13));
  EXPECT_EQ(source.asked.back().max_nodes, 64);
  EXPECT_EQ(drafting_->Draft().draft_nodes(), 1);
}

// Drafters keep outputs for later requests.
TEST_F(GuardedRoundDraftingTest, TheRestIsToldAtTheEnd) {
  Script source = Says(DrafterId::kFused, {{5, 0.9f}});
  Make({&source});
  Commit({4});
  arm_ = DraftArm::kOff;
  Commit({10}, &round_);
  max_depth_ = 0;
  Commit({11}, &round_);
  ASSERT_EQ(source.asked.size(), 2u);
  EXPECT_THAT(source.asked.back().committed, ElementsAre(10, 11));
  EXPECT_EQ(source.asked.back().max_nodes, 0);
}

TEST_F(GuardedRoundDraftingTest, WhatIsUntoldIsBounded) {
  Script source = Says(DrafterId::kFused, {{5, 0.9f}});
  Make({&source});
  Commit({4});
  arm_ = DraftArm::kOff;
  size_t told = 1;
  for (int i = 0; i < 2000; ++i) Commit({7, 8}, &round_);
  for (size_t i = 1; i < source.asked.size(); ++i) {
    EXPECT_EQ(source.asked[i].max_nodes, 0);
    EXPECT_LE(source.asked[i].committed.size(), 300u);
    told += source.asked[i].committed.size();
  }
  EXPECT_GT(told, 3600u);
  EXPECT_LT(source.asked.size(), 20u);
}

// A draft worker would read the prompt of every request for nothing.
TEST_F(GuardedRoundDraftingTest, WhileOffHoldsSourcesAreNotEvenStarted) {
  arm_ = DraftArm::kOff;
  Script first = Says(DrafterId::kFused, {{5, 0.9f}});
  Make({&first});
  Commit({4});
  Script second = Says(DrafterId::kFused, {{5, 0.9f}});
  text_ = {1, 2, 3};
  Make({&second});
  EXPECT_THAT(second.opened.tokens, IsEmpty());
  Commit({4});
  Commit({6}, &round_);
  EXPECT_THAT(second.opened.tokens, IsEmpty());
  EXPECT_THAT(second.asked, IsEmpty());
  arm_ = DraftArm::kNarrow;
  Commit({7}, &round_);
  EXPECT_THAT(second.opened.tokens, ElementsAre(1, 2, 3));
  ASSERT_EQ(second.asked.size(), 1u);
  EXPECT_THAT(second.asked[0].committed, ElementsAre(4, 6, 7));
  // A request of a time when nothing is known starts them ahead.
  now_ += absl::Seconds(2);
  Script third = Says(DrafterId::kFused, {{5, 0.9f}});
  text_ = {1, 2, 3};
  Make({&third});
  EXPECT_THAT(third.opened.tokens, ElementsAre(1, 2, 3));
}

TEST_F(GuardedRoundDraftingTest, UnderNarrowTheLikeliestNodesAreTaken) {
  options_.costs = PassCosts({{1, 1.0}, {2, 1.0}, {65, 64.0}});
  Script source =
      Says(DrafterId::kFused, {{5, 0.9f}, {6, 0.85f}, {7, 0.8f}, {8, 0.1f}});
  arm_ = DraftArm::kNarrow;
  Make({&source});
  Commit({4});
  EXPECT_EQ(drafting_->Draft().draft_nodes(), 1)
      << "two rows cost what one does";
  options_.costs = PassCosts();
  Make({&source});
  Commit({4});
  EXPECT_EQ(drafting_->Draft().draft_nodes(), 3);
}

TEST_F(GuardedRoundDraftingTest, AnExplicitModeFollowsNoArm) {
  options_.economical = false;
  arm_ = DraftArm::kOff;
  Script source = Says(DrafterId::kFused, {{5, 0.9f}});
  Make({&source});
  Commit({4});
  EXPECT_EQ(drafting_->arm(), DraftArm::kNone);
  EXPECT_EQ(drafting_->Draft().draft_nodes(), 1);
}

// A draft model and a source without one.
class HintedRoundDraftingTest : public GuardedRoundDraftingTest {
 protected:
  HintedRoundDraftingTest() {
    options_.costs = PassCosts({{1, 30.0}, {9, 38.0}});
    model_.reads_hints = model_.reads_costs = true;
  }
  // One round, with `path` from the source and whatever the model answers.
  const TokenTree& Round(std::vector<std::pair<TokenId, float>> path,
                         std::vector<TokenId> committed,
                         absl::Duration verify_time = absl::Milliseconds(30)) {
    fused_.draft = Says(DrafterId::kFused, std::move(path)).draft;
    const TokenTree& tree = drafting_->Draft();
    now_ += verify_time;
    Commit(std::move(committed), &round_, verify_time);
    return tree;
  }
  int Asked() const {
    return static_cast<int>(
        std::count_if(model_.asked.begin(), model_.asked.end(),
                      [](const DraftRound& r) { return r.max_nodes > 0; }));
  }
  // Every token that the model was told of.
  std::vector<TokenId> Told() const {
    std::vector<TokenId> told;
    for (const DraftRound& round : model_.asked) {
      told.insert(told.end(), round.committed.begin(), round.committed.end());
    }
    return told;
  }

  Script model_ = Says(DrafterId::kOuroboros, {{8, 0.6f}});
  Script fused_ = Says(DrafterId::kFused, {{5, 0.75f}, {6, 0.5f}});
};

TEST_F(HintedRoundDraftingTest, TheModelIsAskedWithWhatTheOthersPropose) {
  Make({&model_, &fused_});
  Commit({4});
  EXPECT_EQ(fused_.asked.size(), 1u);
  EXPECT_THAT(model_.asked, IsEmpty()) << "its hints are not there yet";
  const TokenTree& tree = drafting_->Draft();
  ASSERT_EQ(model_.asked.size(), 1u);
  const DraftRound& asked = model_.asked[0];
  EXPECT_EQ(asked.length, 4);
  EXPECT_THAT(asked.committed, ElementsAre(4));
  EXPECT_EQ(asked.max_nodes, 64);
  EXPECT_THAT(asked.hints.tokens, ElementsAre(5, 6));
  EXPECT_THAT(asked.hints.parents, ElementsAre(-1, 0));
  EXPECT_THAT(asked.hints.probs, ElementsAre(0.75f, 0.5f));
  // Nothing else is known of a token yet but a pass of one row.
  EXPECT_EQ(asked.token_time, absl::Milliseconds(30));
  ASSERT_EQ(asked.row_ms.size(), 64u);
  EXPECT_FLOAT_EQ(asked.row_ms[0], 1.0f);
  EXPECT_FLOAT_EQ(asked.row_ms[63], 1.0f);
  EXPECT_EQ(model_.deadline, now_ + asked.budget);
  EXPECT_THAT(tree.tokens(), ElementsAre(8, 5, 6));
  EXPECT_EQ(fused_.asked[0].hints.size(), 0);
  EXPECT_THAT(fused_.asked[0].committed, ElementsAre(4));
}

TEST_F(HintedRoundDraftingTest, WhatATokenCostsFollowsTheRounds) {
  Make({&model_, &fused_});
  Commit({4});
  Round({{5, 0.75f}}, {5, 9}, absl::Milliseconds(80));
  drafting_->Draft();
  EXPECT_EQ(model_.asked.back().token_time, absl::Milliseconds(40));
}

TEST_F(HintedRoundDraftingTest, TheModelHearsOfEveryToken) {
  Make({&model_, &fused_});
  Commit({4});
  Commit({10}, &round_);  // without a draft in between
  EXPECT_THAT(Told(), ElementsAre(4));
  EXPECT_EQ(Asked(), 0);
  drafting_->Draft();
  EXPECT_THAT(Told(), ElementsAre(4, 10));
  EXPECT_EQ(Asked(), 1);
  max_depth_ = 0;
  Commit({11}, &round_);
  EXPECT_THAT(Told(), ElementsAre(4, 10, 11)) << "told of the end at once";
  EXPECT_EQ(Asked(), 1);
}

TEST_F(HintedRoundDraftingTest, UnderOffTheModelIsNotAsked) {
  Make({&model_, &fused_});
  arm_ = DraftArm::kOff;
  Commit({4});
  EXPECT_TRUE(drafting_->Draft().empty());
  EXPECT_THAT(model_.asked, IsEmpty());
}

// A sixth of a pass for a token pays where nothing else is known, and not
// beside a text that is copied.
TEST_F(HintedRoundDraftingTest, TheModelIsAskedWhereItPaysBesideTheHints) {
  model_.takes = model_.draft.latency = absl::Milliseconds(5);
  Make({&model_, &fused_});
  Commit({4});
  int asked_beside_copies = 0, asked_alone = 0;
  for (int i = 0; i < 400; ++i) {
    const bool copies = i / 10 % 2 == 0;
    const int before = Asked();
    if (copies) {
      Round({{5, 0.95f}, {6, 0.9f}, {7, 0.85f}}, {5, 6, 7, 1});
      asked_beside_copies += Asked() - before;
    } else {
      Round({{5, 0.05f}}, {8, 1});
      asked_alone += Asked() - before;
    }
  }
  EXPECT_EQ(asked_alone, 200);
  EXPECT_GE(asked_beside_copies, 8);
  EXPECT_LE(asked_beside_copies, 60);
}

TEST_F(HintedRoundDraftingTest, AModelThatWasTooSlowIsTriedAgain) {
  Make({&model_, &fused_});
  Commit({4});
  const auto rounds = [&](int count) {
    const int before = Asked();
    for (int i = 0; i < count; ++i) Round({{5, 0.05f}}, {8, 1});
    return Asked() - before;
  };
  model_.takes = model_.draft.latency = absl::Milliseconds(8);
  EXPECT_EQ(rounds(100), 100);
  model_.takes = model_.draft.latency = absl::Milliseconds(400);
  rounds(200);
  EXPECT_LE(rounds(100), 40);
  model_.takes = model_.draft.latency = absl::Milliseconds(8);
  now_ += absl::Minutes(1);
  EXPECT_EQ(rounds(100), 100);
}

TEST_F(HintedRoundDraftingTest, ALongTextIsNotReadForFewTokens) {
  options_.estimates->NoteTextRead(DrafterId::kOuroboros,
                                   {1000, absl::Seconds(2)});
  model_.has_text = false;
  text_.resize(1000, 7);
  max_depth_ = 49;  // 50 tokens of 30 ms, of which it may save 40 %
  Make({&model_, &fused_});
  Commit({4});
  drafting_->Draft();
  EXPECT_EQ(Asked(), 0);
  EXPECT_THAT(Told(), ElementsAre(4));
  max_depth_ = 400;
  Commit({4}, &round_, absl::Milliseconds(30));
  model_.text_read = {1001, absl::Seconds(1)};
  drafting_->Draft();
  EXPECT_EQ(Asked(), 1);
  EXPECT_LT(options_.estimates->ReadTime(DrafterId::kOuroboros, 1000),
            absl::Seconds(2))
      << "it has learned how long reading took";
  // What it has read costs nothing.
  model_.has_text = true;
  max_depth_ = 5;
  Commit({4}, &round_, absl::Milliseconds(30));
  drafting_->Draft();
  EXPECT_EQ(Asked(), 2);
}

TEST_F(HintedRoundDraftingTest, UnderNarrowTheModelIsAskedForFewNodes) {
  arm_ = DraftArm::kNarrow;
  Make({&model_, &fused_});
  Commit({4});
  drafting_->Draft();
  // Three nodes cost a tenth of a pass, and the others propose two.
  EXPECT_EQ(model_.asked.back().max_nodes, 3);
  fused_.draft =
      Says(DrafterId::kFused, {{5, 0.9f}, {6, 0.8f}, {7, 0.7f}}).draft;
  Commit({4}, &round_, absl::Milliseconds(30));
  drafting_->Draft();
  EXPECT_EQ(Asked(), 1) << "they propose as many";
}

// The model is worth asking for the rows of wrong hints that it saves, though
// it adds few tokens.
TEST_F(HintedRoundDraftingTest, RowsThatTheModelSavesAreItsGain) {
  options_.costs = PassCosts({{1, 30.0}, {9, 110.0}});
  model_ = Says(DrafterId::kOuroboros, {{8, 0.95f}});
  model_.reads_hints = model_.reads_costs = true;
  model_.takes = model_.draft.latency = absl::Milliseconds(20);
  Make({&model_, &fused_});
  Commit({4});
  const std::vector<std::pair<TokenId, float>> wrong = {
      {5, 0.8f}, {6, 0.78f}, {7, 0.76f}, {9, 0.74f}};
  for (int i = 0; i < 100; ++i) Round(wrong, {8, 1}, absl::Milliseconds(40));
  const int before = Asked();
  for (int i = 0; i < 100; ++i) Round(wrong, {8, 1}, absl::Milliseconds(40));
  EXPECT_EQ(Asked() - before, 100);
}

// What the model leaves out for a token that it is sure of is hardly verified,
// unless it turns out to be right.
TEST_F(HintedRoundDraftingTest, TheModelsOpinionMovesTheOthersEstimates) {
  model_ = Says(DrafterId::kOuroboros, {{8, 0.9f}});
  model_.reads_hints = model_.reads_costs = true;
  Make({&model_, &fused_});
  Commit({4});
  const TokenTree first = drafting_->Draft();
  EXPECT_THAT(first.tokens(), ElementsAre(8, 5));
  EXPECT_NEAR(first.probs()[1], 0.075f, 1e-5f);
  for (int i = 0; i < 40; ++i) Round({{5, 0.75f}, {6, 0.5f}}, {5, 6, 1});
  const TokenTree later = Round({{5, 0.75f}, {6, 0.5f}}, {5, 6, 1});
  EXPECT_THAT(later.tokens(), ElementsAre(5, 6));
  EXPECT_GT(later.probs()[0], 0.6f);
}

// A row makes the round of every session longer that shares the pass.
TEST_F(HintedRoundDraftingTest, ARowCostsAllThatShareThePass) {
  Make({&model_, &fused_});
  Commit({4});
  drafting_->Draft();
  const float alone = model_.asked.back().row_ms[0];
  ASSERT_GT(alone, 0.0f);
  RoundResult shared = round_;
  shared.stats.pass_sessions = 4;
  shared.stats.pass_rows = 4;
  shared.stats.pass_time = absl::Milliseconds(30);
  Make({&model_, &fused_});
  Commit({4});
  drafting_->Draft();
  Commit({9}, &shared, absl::Milliseconds(30));
  drafting_->Draft();
  // Four sessions; the costs of this fixture are linear in rows.
  EXPECT_FLOAT_EQ(model_.asked.back().row_ms[0], 4 * alone);
}

TEST_F(HintedRoundDraftingTest, ANamedModesModelIsToldTheCostsAtOnce) {
  options_.economical = false;
  model_.reads_hints = false;
  Make({&model_});
  Commit({4});
  ASSERT_EQ(model_.asked.size(), 1u);
  EXPECT_EQ(model_.asked[0].max_nodes, 64);
  EXPECT_EQ(model_.asked[0].token_time, absl::Milliseconds(30));
  EXPECT_EQ(model_.asked[0].row_ms.size(), 64u);
  EXPECT_EQ(model_.asked[0].hints.size(), 0);
}

}  // namespace
}  // namespace foretoken::orchestrator
