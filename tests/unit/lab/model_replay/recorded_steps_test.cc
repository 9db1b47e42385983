#include "tests/lab/model_replay/recorded_steps.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/lab/model_replay/model_replayer.h"
#include "tests/lab/model_replay/recorded_draft_model.h"
#include "tests/support/fake_backend.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/lab/model_replay/made_up_set.h"

namespace foretoken::model_replay {
namespace {

using ::foretoken::testing::FakeBackend;
using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kRuns[] =
    R"({"method":"draft, run A","id":"q0","new_tokens":[6,3],)"
    R"("decoding_steps":[3,1],"accept_lengths":[1,2,3,3]})"
    "\n"
    R"({"method":"vanilla","id":"q0","new_tokens":[6],"decoding_steps":[6]})"
    "\n"
    R"({"method":"tree, run B","id":"q0","new_tokens":[2],)"
    R"("decoding_steps":[1],"accept_lengths":[2]})"
    "\n";

TEST(RecordedStepsTest, ReadsTheOneRunThatMatches) {
  TempDir dir;
  const std::string path = dir.Write("runs.jsonl", kRuns);
  const auto run = ReadRecordedRun(path, "run A");
  FORETOKEN_ASSERT_OK(run);
  EXPECT_EQ(run->method, "draft, run A");
  ASSERT_EQ(run->turns.size(), 1u);
  EXPECT_THAT(run->turns.at("q0"),
              ElementsAre(TurnSteps{1, 2, 3}, TurnSteps{3}));
  for (const char* method : {"run", "", "vanilla"}) {
    EXPECT_THAT(ReadRecordedRun(path, method),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(path),
                               HasSubstr("draft, run A; tree, run B"))));
  }
}

TEST(RecordedStepsTest, BadRowsAreNamed) {
  TempDir dir;
  const auto read = [&](const std::string& row) {
    return ReadRecordedRun(dir.Write("bad.jsonl", "\n" + row), "a").status();
  };
  const auto error = [](const std::string& text) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    AllOf(HasSubstr("bad.jsonl:2"), HasSubstr(text)));
  };
  const auto row = [](const std::string& tokens, const std::string& steps,
                      const std::string& lengths) {
    return R"({"method":"a","id":"q","new_tokens":)" + tokens +
           R"(,"decoding_steps":)" + steps + R"(,"accept_lengths":)" + lengths +
           "}";
  };
  EXPECT_THAT(read("{"), error("JSON"));
  EXPECT_THAT(read("[]"), error("want an object per line"));
  EXPECT_THAT(read("{}"), error("\"method\""));
  EXPECT_THAT(read(row("[3]", "[2]", "[1,1]")), error("a sum of 3 in turn 0"));
  EXPECT_THAT(read(row("[3]", "[2]", "[3]")), error("one for every step"));
  EXPECT_THAT(read(row("[3]", "[1]", "[3,1]")), error("one for every step"));
  EXPECT_THAT(read(row("[3]", "[1,1]", "[3,1]")), error("as many turns"));
  EXPECT_THAT(read(row("[3]", "[1]", "[-3]")), error("\"accept_lengths\""));
  EXPECT_THAT(read(row("[3.5]", "[1]", "[3]")), error("\"new_tokens\""));
  EXPECT_THAT(read(row("[99999999]", "[1]", "[3]")), error("\"new_tokens\""));
  const std::string good = row("[3]", "[1]", "[3]");
  EXPECT_THAT(ReadRecordedRun(dir.Write("twice", good + "\n" + good), "a"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("\"q\" once for each method")));
}

TEST(DraftScheduleTest, GrowsAfterFullRoundsAndShrinksAfterOthers) {
  DraftSchedule schedule;
  EXPECT_EQ(schedule.First(), 5);
  EXPECT_EQ(schedule.Next(5, 5), 7);
  EXPECT_EQ(schedule.Next(5, 4), 4);
  EXPECT_EQ(schedule.Next(1, 0), 1);
  schedule.constant = 3;
  EXPECT_EQ(schedule.First(), 3);
  EXPECT_EQ(schedule.Next(3, 3), 3);
}

TEST(RecordedStepsTest, OutputsTakeTheRunsLength) {
  RecordedRun run;
  run.method = "run";
  run.turns["q0"] = {{1, 2, 3}, {60}};
  RecordedSet set = MadeUpSet(4);  // q0 q0 q1 q1
  DraftSchedule schedule;
  schedule.constant = 59;
  const auto joined = JoinSteps(set, run, schedule, 64);
  FORETOKEN_ASSERT_OK(joined);
  EXPECT_EQ(joined->left_out, 2);
  ASSERT_EQ(joined->set.turns.size(), 2u);
  EXPECT_THAT(joined->steps, ElementsAre(TurnSteps{1, 2, 3}, TurnSteps{60}));
  const std::vector<TokenId>& own = set.turns[1].output;
  ASSERT_LT(own.size(), 60u);
  EXPECT_EQ(joined->set.turns[0].output.size(), 6u);
  ASSERT_EQ(joined->set.turns[1].output.size(), 60u);
  for (size_t i = 0; i < 60; ++i) {
    EXPECT_EQ(joined->set.turns[1].output[i], own[i % own.size()]);
  }
  EXPECT_THAT(JoinSteps(set, run, schedule, 58),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("run: q0 turn 0: step 0 drafts 59 tokens")));
  EXPECT_THAT(JoinSteps(set, run, DraftSchedule(), 64),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("q0 turn 1: step 0 accepted 59 draft tokens, "
                                 "but the schedule drafts 5")));
}

// Remembers what its rounds committed and what they drafted.
class Watched final : public RoundSource {
 public:
  explicit Watched(RoundSource& source) : source_(source) {}
  absl::Status Start(size_t index, const RecordedTurn& turn) override {
    return source_.Start(index, turn);
  }
  absl::Status Draft(DraftTree& tree) override {
    const absl::Status status = source_.Draft(tree);
    drafted.push_back(tree.size());
    return status;
  }
  absl::Status Commit(absl::Span<const TokenId> tokens,
                      const VerifiedRound* round) override {
    if (round != nullptr) committed.push_back(static_cast<int>(tokens.size()));
    return source_.Commit(tokens, round);
  }
  void End() override { source_.End(); }
  // After the part that warms up.
  void Forget() override {
    drafted.clear();
    committed.clear();
  }

  std::vector<int> drafted;
  std::vector<int> committed;

 private:
  RoundSource& source_;
};

RecordedSet OneTurn(size_t output) {
  RecordedSet set = MadeUpSet(1);
  set.turns[0].output.resize(output);
  return set;
}

absl::StatusOr<std::vector<TurnResult>> Replayed(Backend& target,
                                                 RoundSource& source,
                                                 const RecordedSet& set) {
  std::vector<TurnResult> turns;
  const absl::Status status =
      ModelReplayer(target, {&source}, 8)
          .Replay(
              set, [](size_t) { return true; },
              [&](size_t, absl::Span<const TurnResult> results) {
                turns.push_back(results[0]);
                return absl::OkStatus();
              });
  if (!status.ok()) return status;
  return turns;
}

TEST(RecordedDraftModelTest, RoundsCommitWhatTheRunCommitted) {
  FakeBackend target({}), draft({});
  DraftSchedule schedule;
  schedule.constant = 4;
  // The first step's token is prefill's, the rest of it the first round's; the
  // third accepts all that was drafted.
  RecordedDraftModel source(draft, {{3, 1, 5, 2}}, schedule);
  Watched watched(source);
  const auto turns = Replayed(target, watched, OneTurn(11));
  FORETOKEN_ASSERT_OK(turns);
  EXPECT_THAT(watched.committed, ElementsAre(2, 1, 5, 2));
  EXPECT_THAT(watched.drafted, ElementsAre(3, 4, 4, 4));
  EXPECT_EQ((*turns)[0].tokens, 10);
  // 3 passes beside the prompt's for the first step, 4 for each other; all of
  // it once more to warm up.
  EXPECT_EQ(source.passes(), 2 * (3 + 3 * 4));
  EXPECT_EQ(draft.forwards(), 2 * (1 + 3 + 3 * 4));
  EXPECT_EQ(draft.kv_usage().sessions, 0);
}

TEST(RecordedDraftModelTest, AFirstStepOfOneTokenIsPrefills) {
  FakeBackend target({}), draft({});
  RecordedDraftModel source(draft, {{1, 6, 1}}, DraftSchedule{});
  Watched watched(source);
  // 5 drafted and none right, then 4.
  EXPECT_THAT(Replayed(target, watched, OneTurn(8)),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("goes on after its 3 recorded steps")));
  RecordedDraftModel right(draft, {{1, 5, 2}}, DraftSchedule{});
  Watched watched_right(right);
  FORETOKEN_ASSERT_OK(Replayed(target, watched_right, OneTurn(8)));
  EXPECT_THAT(watched_right.committed, ElementsAre(5, 2));
  EXPECT_THAT(watched_right.drafted, ElementsAre(4, 6));
}

TEST(RecordedDraftModelTest, ACutRecordingEndsWithinAStep) {
  FakeBackend target({}), draft({});
  RecordedDraftModel source(draft, {{2, 5, 2}}, DraftSchedule{});
  Watched watched(source);
  FORETOKEN_ASSERT_OK(Replayed(target, watched, OneTurn(4)));
  EXPECT_THAT(watched.committed, ElementsAre(1, 2));
}

}  // namespace
}  // namespace foretoken::model_replay
