// `foretoken bench modes` against a server.
#include <string>

#include "common/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/process.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_data.h"
#include "tests/unit/cli/run_command.h"

namespace foretoken::testing {
namespace {

using ::testing::HasSubstr;

TEST(BenchModesTest, ComparesTheModesOfAServer) {
  TempDir dir;
  const std::string server = "unix:" + dir.File("socket");
  Process local({FORETOKEN_LOCAL_BINARY, "--model",
                 SourcePath("tools/demo/target"), "--threads=1", "--listen",
                 server, "--metrics-listen="});
  ASSERT_EQ(RunCommand(dir, "health --wait 60 --server " + server).exit_status,
            0);
  dir.Write("prompts.jsonl",
            "{\"prompt\": \"Once upon a time there was a cat\"}\n"
            "{\"prompt_ids\": [0, 300, 301, 302]}\n");
  const std::string command = "bench modes --server " + server + " --prompts " +
                              dir.File("prompts.jsonl") +
                              " --pairs 1 --requests 4 --max-tokens 8 ";
  const auto ran =
      RunCommand(dir, command + "--modes off,auto --concurrency 2 --json");
  ASSERT_EQ(ran.exit_status, 0) << ran.err;
  const auto json = ParseJson(ran.out);
  FORETOKEN_ASSERT_OK(json);
  ASSERT_EQ((*json)["runs"].size(), 2u);
  for (const Json& run : (*json)["runs"]) {
    EXPECT_EQ(run["concurrency"], 2);
    EXPECT_EQ(run["requests"], 4);
    EXPECT_GT(run["tokens_per_s"], 0.0);
  }
  const auto without =
      RunCommand(dir, command + "--modes off,draft_model --concurrency 1");
  EXPECT_EQ(without.exit_status, 1);
  EXPECT_THAT(without.err, HasSubstr("mode draft_model, 1 at once: prompt 1"));
  const auto prior = RunCommand(dir, command + "--prior x");
  EXPECT_EQ(prior.exit_status, 1);
  EXPECT_THAT(prior.err, HasSubstr("--prior: a server uses its own"));
}

}  // namespace
}  // namespace foretoken::testing
