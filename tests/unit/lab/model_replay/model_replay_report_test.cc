#include "common/base/json.h"
#include "tests/lab/model_replay/model_replay_report.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::model_replay {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<TurnResult> Turns() {
  TurnResult a;
  a.id = "q0";
  a.category = "chat";
  a.tokens = a.plain_tokens = 9;
  a.rounds = 3;
  a.nodes = 12;
  a.prefill = 1.0;
  a.plain = 9.0;
  a.speculative = 4.0;
  a.drafting = 1.0;
  TurnResult b = a;  // the same question's second turn
  TurnResult c;
  c.id = "q1";
  c.category = "code";
  c.tokens = c.plain_tokens = 19;
  c.rounds = 19;
  c.plain = 10.0;
  c.speculative = 20.0;
  return {a, b, c};
}

ReplaySetup TestSetup() {
  ReplaySetup setup;
  setup.mode = "auto";
  setup.state = "cold";
  setup.shape = "llama-2-7b";
  setup.backend = "cpu;x";
  setup.file = "set.jsonl";
  setup.node_price = "measured";
  setup.max_tree_nodes = 64;
  setup.pass_ms = {{1, 2.0}, {64, 5.5}};
  return setup;
}

TEST(ModelReplayReportTest, JsonHasEveryFigure) {
  const Json report = ModelReplayJson(TestSetup(), Turns());
  EXPECT_EQ(report["label"],
            "real passes of random weights; accepted by the recording");
  EXPECT_EQ(report["mode"], "auto");
  EXPECT_EQ(report["state"], "cold");
  EXPECT_EQ(report["shape"], "llama-2-7b");
  EXPECT_EQ(report["backend"], "cpu;x");
  EXPECT_EQ(report["file"], "set.jsonl");
  EXPECT_EQ(report["node_price"], "measured");
  EXPECT_EQ(report["max_tree_nodes"], 64);
  EXPECT_EQ(report["pass_costs"][1], Json({{"rows", 64.0}, {"ms", 5.5}}));
  EXPECT_EQ(report.size(), 11u);

  const Json& chat = report["categories"]["chat"];
  EXPECT_EQ(chat["turns"], 2);
  EXPECT_EQ(chat["tokens"], 18);
  EXPECT_EQ(chat["rounds"], 6);
  EXPECT_DOUBLE_EQ(chat["accept_length"], 3.0);
  EXPECT_DOUBLE_EQ(chat["mean_rows"], 5.0);
  EXPECT_DOUBLE_EQ(chat["plain_tok_s"], 1.0);
  EXPECT_DOUBLE_EQ(chat["speculative_tok_s"], 2.25);
  EXPECT_DOUBLE_EQ(chat["speedup"], 2.25);
  EXPECT_DOUBLE_EQ(chat["drafting_share"], 0.25);
  EXPECT_DOUBLE_EQ(chat["speedup_with_prefill"], 2.0);
  EXPECT_DOUBLE_EQ(chat["spec_bench_speedup"], 2.0);
  EXPECT_EQ(chat.size(), 11u);

  const Json& all = report["all"];
  EXPECT_EQ(all["turns"], 3);
  EXPECT_DOUBLE_EQ(all["accept_length"], 37.0 / 25.0);
  EXPECT_DOUBLE_EQ(all["speedup"], 28.0 / 28.0);
  EXPECT_DOUBLE_EQ(all["speedup_with_prefill"], 30.0 / 30.0);
  // Questions write 20 tokens in 20 and 10 seconds, and in 10 and 20.
  EXPECT_DOUBLE_EQ(all["spec_bench_speedup"], (2.0 + 1.0) / (1.0 + 2.0));
}

TEST(ModelReplayReportTest, TokensOfEachSideAreDividedByItsOwnSeconds) {
  TurnResult turn = Turns()[0];
  turn.plain_tokens = 6;  // of a window that the source's last round exceeded
  const Json all = ModelReplayJson(TestSetup(), {turn})["all"];
  EXPECT_DOUBLE_EQ(all["plain_tok_s"], 6.0 / 9.0);
  EXPECT_DOUBLE_EQ(all["speculative_tok_s"], 9.0 / 4.0);
  EXPECT_DOUBLE_EQ(all["accept_length"], 3.0);
}

TEST(ModelReplayReportTest, WindowsAreTold) {
  ReplaySetup setup = TestSetup();
  setup.window = 8;
  setup.window_seed = 3;
  const Json report = ModelReplayJson(setup, Turns());
  EXPECT_EQ(report["window"], 8);
  EXPECT_EQ(report["window_seed"], 3);
  // No prefill was timed.
  EXPECT_FALSE(report["all"].contains("speedup_with_prefill"));
  EXPECT_FALSE(report["categories"]["chat"].contains("spec_bench_speedup"));
  EXPECT_THAT(ModelReplayTable(report),
              HasSubstr("8 tokens of each output, at places of seed 3\n"));
}

TEST(ModelReplayReportTest, ADraftModelIsTold) {
  ReplaySetup setup = TestSetup();
  setup.draft_shape = "llama-68m";
  setup.method = "draft, run A";
  setup.turns_left_out = 4;
  const Json report = ModelReplayJson(setup, Turns());
  EXPECT_EQ(report["draft_shape"], "llama-68m");
  EXPECT_EQ(report["method"], "draft, run A");
  EXPECT_EQ(report["turns_left_out"], 4);
  EXPECT_THAT(
      ModelReplayTable(report),
      HasSubstr("draft model of shape llama-68m, steps of draft, run A, "
                "4 turns left out"));
}

TEST(ModelReplayReportTest, TheTableIsLabelled) {
  const std::string table =
      ModelReplayTable(ModelReplayJson(TestSetup(), Turns()));
  EXPECT_EQ(table.find(kLabel), 0u);
  EXPECT_THAT(table, HasSubstr("mode auto, cold, shape llama-2-7b"));
  EXPECT_THAT(table, HasSubstr("64: 5.500"));
  EXPECT_THAT(table, HasSubstr("\nchat "));
  EXPECT_THAT(table, HasSubstr("\nALL "));
  EXPECT_THAT(table, Not(HasSubstr("draft model")));
}

TEST(ModelReplayReportTest, NothingToDivideByIsNoNumberOfAnyKind) {
  TurnResult empty;
  const Json report = ModelReplayJson(TestSetup(), {empty});
  EXPECT_EQ(report["all"]["accept_length"], 1.0);
  EXPECT_EQ(report["all"]["speedup"], 0.0);
  EXPECT_EQ(report["all"]["spec_bench_speedup"], 0.0);
}

}  // namespace
}  // namespace foretoken::model_replay
