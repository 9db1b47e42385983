#include "common/base/json.h"
#include "common/drafting/replay_report.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

using ::testing::HasSubstr;

ReplaySetResult MakeResult() {
  ReplaySetResult set;
  set.file = "set.jsonl.gz";
  set.prompt_tokens = 30;
  set.output_tokens = 22;
  set.all = {2, 20, 10, {4, 4, 1, 0, 1}};
  set.without_loops = {1, 12, 8};
  set.categories["qa"] = {2, 20, 10, {4, 4, 1, 0, 1}};
  set.tree_nodes = 64;
  set.rounds_without_accept = 4;
  return set;
}

ReplayCosts MakeCosts() {
  ReplayCosts costs;
  costs.draft_cpu_us = {1, 2, 3};
  costs.draft_wall_us = {2, 4, 6};
  costs.insert_cpu_us = 11;
  costs.insert_wall_us = 22;
  costs.inserted_tokens = 22;
  costs.prompt_cpu_us = 60;
  costs.prompt_tokens = 30;
  costs.request_bytes = 5200;
  costs.request_tokens = 52;
  costs.history_bytes = 300;
  costs.history_tokens = 3;
  return costs;
}

TEST(ReplayJsonTest, HoldsEveryFigure) {
  const Json json =
      ReplayJson("off", 64, {MakeResult()}, ReplayCostSummary(MakeCosts()));
  const Json want = Json::parse(R"({
    "mode": "off", "max_tree_nodes": 64,
    "sets": [{"file": "set.jsonl.gz", "turns": 2, "prompt_tokens": 30,
              "output_tokens": 22, "tokens": 20, "rounds": 10,
              "accept_length": 2.0, "accept_length_without_loops": 1.5,
              "mean_tree_nodes": 6.4, "zero_accept_share": 0.4,
              "rounds_by_length": [4, 4, 1, 0, 1],
              "categories": {"qa": {"turns": 2, "tokens": 20, "rounds": 10,
                                    "accept_length": 2.0,
                                    "rounds_by_length": [4, 4, 1, 0, 1]}}}],
    "draft_us": {"p50": 2.0, "p99": 3.0},
    "draft_wall_us": {"p50": 4.0, "p99": 6.0},
    "insert_us_per_token": 0.5, "insert_wall_us_per_token": 1.0,
    "prompt_us_per_token": 2.0,
    "request_bytes_per_token": 100.0, "history_bytes_per_token": 100.0})");
  EXPECT_EQ(json, want) << json.dump(1);
}

TEST(ReplayJsonTest, AReplayWithoutRoundsHasNoFigureToDivideBy) {
  const Json json =
      ReplayJson("off", 64, {ReplaySetResult{}}, ReplayCostSummary({}));
  EXPECT_EQ(json["sets"][0]["accept_length"], 1.0);
  EXPECT_EQ(json["sets"][0]["mean_tree_nodes"], 0.0);
  EXPECT_EQ(json["insert_us_per_token"], 0.0);
  EXPECT_EQ(json["history_bytes_per_token"], 0.0);
}

TEST(ReplayTableTest, HasALineForEveryCategory) {
  const std::string table =
      ReplayTable("off", 64, {MakeResult()}, ReplayCostSummary(MakeCosts()));
  EXPECT_THAT(table, HasSubstr("set.jsonl.gz"));
  EXPECT_THAT(table, HasSubstr("qa "));
  EXPECT_THAT(table, HasSubstr("ALL without loops"));
  EXPECT_THAT(table, HasSubstr("2.000"));
  EXPECT_THAT(table, HasSubstr("40.0 % of rounds"));
}

}  // namespace
}  // namespace foretoken
