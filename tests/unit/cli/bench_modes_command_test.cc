// `foretoken bench modes` as a user runs it, on the demo pair.
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "common/base/json.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_data.h"
#include "tests/unit/cli/run_command.h"

namespace foretoken {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class BenchModesCommandTest : public ::testing::Test {
 protected:
  BenchModesCommandTest() {
    dir_.Write("prompts.jsonl",
               "{\"prompt\": \"Once upon a time there was a cat\"}\n"
               "{\"prompt\": \"def add(a, b):\\n    return\"}\n"
               "{\"prompt_ids\": [0, 300, 301, 302]}\n"
               "{\"prompt\": \"import os\\nimport sys\\n\"}\n");
  }

  // With the model, prompts and a seed.
  testing::CommandResult Run(const std::string& arguments) {
    return testing::RunCommand(
        dir_, "bench modes --threads 1 --seed 3 --model " +
                  testing::SourcePath("tools/demo/target") + " --prompts " +
                  dir_.File("prompts.jsonl") + " " + arguments);
  }

  testing::TempDir dir_;
};

TEST_F(BenchModesCommandTest, ComparesModesAtEveryConcurrency) {
  const std::string svg = dir_.File("plot.svg");
  const auto ran =
      Run("--modes off,off,auto,prompt_lookup:max_n=2,tokens=4 --concurrency "
          "1,3 --pairs 2 --requests 4 --max-tokens 12 --temperature 0.7 --json "
          "--svg " +
          svg);
  ASSERT_EQ(ran.exit_status, 0) << ran.err;
  EXPECT_EQ(ran.out.find('\n'), ran.out.size() - 1);
  const auto json = ParseJson(ran.out);
  ASSERT_THAT(json, testing::IsOk());
  const Json& runs = (*json)["runs"];
  ASSERT_EQ(runs.size(), 8u);
  const char* const modes[] = {"off", "off", "auto",
                               "prompt_lookup:max_n=2,tokens=4"};
  for (size_t i = 0; i < runs.size(); ++i) {
    const Json& run = runs[i];
    EXPECT_EQ(run["mode"], modes[i % 4]);
    EXPECT_EQ(run["concurrency"], i < 4 ? 1 : 3);
    EXPECT_EQ(run["pairs"], 2);
    EXPECT_EQ(run["requests"], 8);
    EXPECT_EQ(run["refused"], 0);
    // The modes give the same outputs.
    EXPECT_EQ(run["tokens"], runs[0]["tokens"]);
    EXPECT_GT(run["tokens"], 8);
    EXPECT_GT(run["ratio_to_off"], 0.0);
    EXPECT_LE(run["ratio_low"], run["ratio_to_off"]);
    EXPECT_LE(run["ratio_to_off"], run["ratio_high"]);
    EXPECT_LE(run["tokens_per_s_low"], run["tokens_per_s"]);
    EXPECT_LE(run["tokens_per_s"], run["tokens_per_s_high"]);
    EXPECT_GE(run["accept_length"], 1.0);
    EXPECT_GT(run["decode_tokens_per_s"], 0.0);
    EXPECT_LE(run["decode_ratio_low"], run["decode_ratio_to_off"]);
    EXPECT_LE(run["decode_ratio_to_off"], run["decode_ratio_high"]);
    EXPECT_EQ(run["shortened_drafts"], 0);
    EXPECT_GT(run["phases_ms"]["verify"], 0.0);
    EXPECT_GE(run["phases_ms"]["draft"], 0.0);
    EXPECT_GE(run["phases_ms"]["other"], 0.0);
    for (const char* times : {"ttft_ms", "itl_ms", "latency_ms"}) {
      EXPECT_GT(run[times]["p50"], 0.0);
      EXPECT_LE(run[times]["p50"], run[times]["p95"]);
      EXPECT_LE(run[times]["p95"], run[times]["p99"]);
    }
    if (run["mode"] == "off") {
      EXPECT_EQ(run["by_drafter"], Json::object());
      EXPECT_EQ(run["accept_length"], 1.0);
    }
  }
  EXPECT_TRUE(runs[3]["by_drafter"].contains("prompt_lookup"));
  EXPECT_GT((*json)["machine"]["read_gb_s"], 0.0);
  EXPECT_GT((*json)["machine"]["int8_multiply_adds_per_s"], 0.0);
  EXPECT_TRUE((*json)["left_out"].empty());
  EXPECT_GT((*json)["method"]["tokens_compared"], 0);
  EXPECT_NE((*json)["method"]["numerics"], "");
  std::stringstream plot;
  plot << std::ifstream(svg).rdbuf();
  EXPECT_THAT(plot.str(), HasSubstr(">auto</text>"));
}

TEST_F(BenchModesCommandTest, PlaysATrace) {
  const std::string trace =
      dir_.Write("trace.csv",
                 "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                 "2023-11-16 18:17:03.9799600,4808,3\r\n"
                 "2023-11-16 18:17:04.0319600,3180,8\r\n"
                 "2023-11-16 18:17:05.9799600,110,27\r\n");
  const auto ran = Run("--modes off,auto --pairs 1 --max-tokens 10 --trace " +
                       trace + " --speed 50");
  ASSERT_EQ(ran.exit_status, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("| trace | off | "));
  // 3, 8 and 10 tokens in each of two modes; one pair has no interval.
  EXPECT_THAT(ran.out, HasSubstr(" (? to ?) | 1 | 1 | 1.00 |"));
}

TEST_F(BenchModesCommandTest, ChatsByTheModelsOwnTemplate) {
  dir_.Write("prompts.jsonl",
             "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}");
  const auto ran = Run("--chat auto --pairs 1 --requests 2 --max-tokens 4");
  EXPECT_EQ(ran.exit_status, 0) << ran.err;
}

TEST_F(BenchModesCommandTest, ErrorsSayWhatIsWrong) {
  const auto fails = [&](const std::string& arguments, const std::string& why) {
    const auto ran = Run(arguments);
    EXPECT_EQ(ran.exit_status, 1) << arguments;
    EXPECT_THAT(ran.out, IsEmpty());
    EXPECT_THAT(ran.err, HasSubstr(why));
  };
  fails("--modes auto", "--modes: must include off");
  fails("--modes off,telepathy", "unknown mode 'telepathy'");
  fails("--until 0", "--until: '0', want a percentage above 0");
  fails("--server 127.0.0.1:1", "want either --server or --model");
  fails("--trace " + dir_.File("none"), "NOT_FOUND");
  fails("--modes off,crest --pairs 1", "mode crest, 1 at once: prompt 1: ");
  dir_.Write("prompts.jsonl", "{\"messages\": [{\"role\": \"user\"}]}");
  fails("", "prompts.jsonl:1: field \"messages\": want --chat auto");
  fails("--tokenizer x", "--tokenizer: a model has its own");
  const auto both = Run("--trace x --concurrency 2");
  EXPECT_EQ(both.exit_status, 2);
}

}  // namespace
}  // namespace foretoken
