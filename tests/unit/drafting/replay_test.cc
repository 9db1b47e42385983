#include "common/drafting/replay.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Tokens = std::vector<TokenId>;

void NoProgress(int64_t) {}

// Records what it is told and drafts what the test says.
class ScriptedDrafter final : public Drafter {
 public:
  using Script = std::function<void(const Tokens& context, DraftTree& tree)>;
  explicit ScriptedDrafter(Script script) : script_(std::move(script)) {}

  void StartRequest(absl::Span<const TokenId> prompt) override {
    context_.assign(prompt.begin(), prompt.end());
    events.push_back("start");
  }
  void Commit(absl::Span<const TokenId> tokens) override {
    context_.insert(context_.end(), tokens.begin(), tokens.end());
    commits.emplace_back(tokens.begin(), tokens.end());
  }
  void Draft(int, DraftTree& tree) override {
    tree.Clear();
    script_(context_, tree);
  }
  void AddHistory(absl::Span<const TokenId> output) override {
    events.push_back("history");
    history.emplace_back(output.begin(), output.end());
  }
  void ForgetShared() override { events.push_back("forget"); }
  size_t RequestBytes() const override { return 10 * context_.size(); }
  size_t SharedBytes() const override { return 600; }
  int64_t SharedTokens() const override { return 20; }

  std::vector<Tokens> commits;
  std::vector<Tokens> history;
  std::vector<std::string> events;

 private:
  Script script_;
  Tokens context_;
};

RecordedSet MakeSet(std::vector<Tokens> outputs) {
  RecordedSet set;
  set.file = "set";
  for (Tokens& output : outputs) {
    set.turns.push_back({"id", "chat", {1}, std::move(output), false});
  }
  return set;
}

TEST(ReplayTest, WithoutDraftsEveryRoundCommitsOneToken) {
  ScriptedDrafter drafter([](const Tokens&, DraftTree&) {});
  Replayer replayer(drafter, 64);
  const auto result =
      replayer.Replay(MakeSet({{5, 6, 7}, {8}}), {}, NoProgress);
  FORETOKEN_ASSERT_OK(result);
  EXPECT_EQ(result->all.turns, 2);
  EXPECT_EQ(result->all.tokens, 2);  // prefill's tokens are counted nowhere
  EXPECT_EQ(result->all.rounds, 2);
  EXPECT_DOUBLE_EQ(result->all.accept_length(), 1.0);
  EXPECT_EQ(result->rounds_without_accept, 2);
  EXPECT_THAT(drafter.commits,
              ElementsAre(Tokens{5}, Tokens{6}, Tokens{7}, Tokens{8}));
}

TEST(ReplayTest, TheDeepestAgreeingPathAndABonusTokenAreCommitted) {
  //  -+- 9
  //   +- 6 -+- 0
  //         +- 7 --- 1
  ScriptedDrafter drafter([](const Tokens& context, DraftTree& tree) {
    if (context.back() != 5) return;
    tree.Add(9, kRootParent, 0.5f);
    const int32_t six = tree.Add(6, kRootParent, 0.5f);
    tree.Add(0, six, 0.2f);
    tree.Add(1, tree.Add(7, six, 0.2f), 0.1f);
  });
  Replayer replayer(drafter, 64);
  const auto result =
      replayer.Replay(MakeSet({{5, 6, 7, 8, 4}}), {}, NoProgress);
  FORETOKEN_ASSERT_OK(result);
  EXPECT_THAT(drafter.commits,
              ElementsAre(Tokens{5}, Tokens{6, 7, 8}, Tokens{4}));
  EXPECT_EQ(result->all.rounds, 2);
  EXPECT_EQ(result->all.tokens, 4);
  EXPECT_DOUBLE_EQ(result->all.accept_length(), 2.0);
  EXPECT_EQ(result->tree_nodes, 5);
  EXPECT_DOUBLE_EQ(result->mean_tree_nodes(), 2.5);
  EXPECT_EQ(result->rounds_without_accept, 1);
}

TEST(ReplayTest, NothingIsCommittedPastTheEndOfTheRecording) {
  ScriptedDrafter drafter([](const Tokens&, DraftTree& tree) {
    int32_t at = kRootParent;
    for (TokenId token = 6; token < 16; ++token) at = tree.Add(token, at, 1.0f);
  });
  Replayer replayer(drafter, 64);
  const auto result = replayer.Replay(MakeSet({{5, 6, 7}}), {}, NoProgress);
  FORETOKEN_ASSERT_OK(result);
  EXPECT_THAT(drafter.commits, ElementsAre(Tokens{5}, Tokens{6, 7}));
  EXPECT_EQ(result->all.tokens, 2);
  EXPECT_EQ(result->all.rounds, 1);
}

TEST(ReplayTest, CountsRoundsByTheTokensThatTheyCommit) {
  RecordedSet set = MakeSet({{5, 6, 7, 8}, {5, 6, 9}});
  set.turns[1].category = "math";
  // Two draft tokens after 5, nothing after any other token.
  ScriptedDrafter drafter([](const Tokens& context, DraftTree& tree) {
    if (context.back() != 5) return;
    tree.Add(7, tree.Add(6, kRootParent, 1.0f), 1.0f);
  });
  Replayer replayer(drafter, 64);
  const auto result = replayer.Replay(set, {}, NoProgress);
  FORETOKEN_ASSERT_OK(result);
  EXPECT_THAT(result->all.rounds_by_length, ElementsAre(0, 1, 1));
  EXPECT_THAT(result->categories.at("chat").rounds_by_length,
              ElementsAre(0, 0, 1));
  EXPECT_THAT(result->categories.at("math").rounds_by_length,
              ElementsAre(0, 1));
}

TEST(ReplayTest, CountsByCategoryAndWithoutLoops) {
  RecordedSet set = MakeSet({{5, 6}, {5, 6, 7}, {5, 6, 7, 8}});
  set.turns[1].category = "math";
  set.turns[2].hit_length_limit = true;
  ScriptedDrafter drafter([](const Tokens& context, DraftTree& tree) {
    if (context.back() == 5) {
      tree.Add(7, tree.Add(6, kRootParent, 1.0f), 1.0f);
    }
  });
  Replayer replayer(drafter, 64);
  int64_t done = 0;
  const auto result =
      replayer.Replay(set, {}, [&](int64_t turns) { done = turns; });
  FORETOKEN_ASSERT_OK(result);
  EXPECT_EQ(done, 3);
  EXPECT_EQ(result->all.tokens, 1 + 2 + 3);
  EXPECT_EQ(result->all.rounds, 1 + 1 + 1);
  EXPECT_EQ(result->without_loops.turns, 2);
  EXPECT_EQ(result->without_loops.tokens, 3);
  EXPECT_EQ(result->categories.at("chat").tokens, 4);
  EXPECT_EQ(result->categories.at("math").tokens, 2);
  EXPECT_DOUBLE_EQ(result->categories.at("math").accept_length(), 2.0);
}

TEST(ReplayTest, EverySetStartsFromTheHistoryAlone) {
  ScriptedDrafter drafter([](const Tokens&, DraftTree&) {});
  Replayer replayer(drafter, 64);
  const std::vector<RecordedSet> history = {MakeSet({{1, 2}, {3}})};
  for (int i = 0; i < 2; ++i) {
    FORETOKEN_ASSERT_OK(replayer.Replay(MakeSet({{5}}), history, NoProgress));
  }
  EXPECT_THAT(drafter.events,
              ElementsAre("forget", "history", "history", "start", "forget",
                          "history", "history", "start"));
  EXPECT_THAT(drafter.history,
              ElementsAre(Tokens{1, 2}, Tokens{3}, Tokens{1, 2}, Tokens{3}));
}

TEST(ReplayTest, CostsAreSummedOverSets) {
  ScriptedDrafter drafter([](const Tokens&, DraftTree&) {});
  Replayer replayer(drafter, 64);
  for (int i = 0; i < 2; ++i) {
    FORETOKEN_ASSERT_OK(
        replayer.Replay(MakeSet({{5, 6, 7}, {8}}), {}, NoProgress));
  }
  const ReplayCosts& costs = replayer.costs();
  EXPECT_EQ(costs.draft_cpu_us.size(), 4u);
  EXPECT_EQ(costs.draft_wall_us.size(), 4u);
  EXPECT_EQ(costs.inserted_tokens, 8);
  EXPECT_EQ(costs.prompt_tokens, 4);
  EXPECT_EQ(costs.request_tokens, 12);
  EXPECT_DOUBLE_EQ(costs.request_bytes, 120);
  EXPECT_DOUBLE_EQ(costs.history_bytes, 1200);
  EXPECT_EQ(costs.history_tokens, 40);
}

TEST(ReplayTest, ADraftThatBreaksItsContractIsNamed) {
  const auto replay = [](ScriptedDrafter::Script script) {
    ScriptedDrafter drafter(std::move(script));
    Replayer replayer(drafter, 2);
    return replayer.Replay(MakeSet({{5, 6}}), {}, NoProgress).status();
  };
  EXPECT_THAT(replay([](const Tokens&, DraftTree& tree) {
                for (int i = 0; i < 3; ++i) tree.Add(i, kRootParent, 0.0f);
              }),
              StatusIs(absl::StatusCode::kInternal,
                       AllOf(HasSubstr("set: turn 0 (id)"),
                             HasSubstr("draft of 3 nodes"))));
  EXPECT_THAT(replay([](const Tokens&, DraftTree& tree) {
                tree.Add(1, kRootParent, 0.0f);
                tree.Add(1, 1, 0.0f);
              }),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("draft node 1 has parent 1")));
}

TEST(PercentileTest, IsTheValueBelowWhichTheShareLies) {
  std::vector<float> samples;
  for (int i = 100; i >= 1; --i) samples.push_back(static_cast<float>(i));
  EXPECT_EQ(Percentile(samples, 0.5), 51);
  EXPECT_EQ(Percentile(samples, 0.99), 100);
  EXPECT_EQ(Percentile(samples, 1.0), 100);
  EXPECT_EQ(Percentile(samples, 0.0), 1);
  EXPECT_EQ(Percentile({}, 0.5), 0);
}

}  // namespace
}  // namespace foretoken
