// `foretoken prior grow` as a user runs it, and its file of prompts.
#include <filesystem>
#include <string>

#include "common/base/file.h"
#include "common/base/json.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_data.h"
#include "tests/unit/cli/run_command.h"

namespace foretoken {
namespace {

using ::testing::HasSubstr;

class PriorGrowCommandTest : public ::testing::Test {
 protected:
  testing::CommandResult Grow(const std::string& prompts,
                              const std::string& flags) {
    return testing::RunCommand(
        dir_, "prior grow --prompts '" + dir_.Write("prompts.jsonl", prompts) +
                  "' --out '" + dir_.File("prior") + "' " + flags);
  }
  // On the demo model, eight tokens for each prompt.
  testing::CommandResult GrowHere(const std::string& prompts,
                                  const std::string& flags = "") {
    return Grow(prompts, "--model '" + model_ +
                             "' --max-tokens 8 --threads 1 --minutes 5 " +
                             flags);
  }
  void ExpectRefused(const std::string& prompts, const std::string& reason,
                     const std::string& flags = "") {
    const auto refused = GrowHere(prompts, flags);
    EXPECT_EQ(refused.exit_status, 1) << prompts;
    EXPECT_THAT(refused.err, HasSubstr(reason));
    EXPECT_FALSE(std::filesystem::exists(dir_.File("prior"))) << prompts;
  }

  testing::TempDir dir_;
  const std::string model_ = testing::SourcePath("tools/demo/target");
};

TEST_F(PriorGrowCommandTest, TheModelWritesAPriorThatItsDrafterTakes) {
  const auto grown = GrowHere(
      "{\"prompt\":\"Once upon a time\"}\n"
      "{\"prompt_ids\":[1,2,3]}\n"
      "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}\n",
      "--chat chatml --text-out '" + dir_.File("rows.jsonl") + "'");
  ASSERT_EQ(grown.exit_status, 0) << grown.err;
  EXPECT_THAT(grown.out, HasSubstr("3 outputs of "));

  const auto drafted = testing::RunCommand(
      dir_, "generate --local --model '" + model_ + "' --prior '" +
                dir_.File("prior") +
                "' --mode auto --max-tokens 8 --threads 1 --json --prompt "
                "'Once upon a time'");
  ASSERT_EQ(drafted.exit_status, 0) << drafted.err;
  const absl::StatusOr<Json> said = ParseJson(drafted.out);
  FORETOKEN_ASSERT_OK(said.status());
  // The first row is the same request.
  const absl::StatusOr<std::string> rows = ReadFile(dir_.File("rows.jsonl"));
  FORETOKEN_ASSERT_OK(rows.status());
  EXPECT_THAT(*rows, HasSubstr(DumpJson((*said)["text"])));

  // The rows are a corpus, and the prior a base, of the next run.
  const auto merged = GrowHere("{\"prompt\":\"The cat\"}\n",
                               "--merge '" + dir_.File("rows.jsonl") +
                                   "' --base '" + dir_.File("prior") + "'");
  ASSERT_EQ(merged.exit_status, 0) << merged.err;
  EXPECT_THAT(merged.out, HasSubstr("1 outputs of "));
  EXPECT_THAT(merged.out, HasSubstr("3 documents"));
}

TEST_F(PriorGrowCommandTest, PromptsAreCheckedByLineAndField) {
  const std::string good = "{\"prompt\":\"a\"}\n";
  ExpectRefused("", "no prompts");
  ExpectRefused(good + "{\"text\":\"a\"}\n", "prompts.jsonl:2");
  ExpectRefused("{\"prompt\":\"a\",\"prompt_ids\":[1]}\n",
                "has 2 of the fields");
  ExpectRefused("{\"prompt\":\"\"}\n", "\"prompt\"");
  ExpectRefused("{\"prompt_ids\":[1,-1]}\n", "\"prompt_ids\"");
  ExpectRefused("{\"prompt_ids\":[99999999999]}\n", "\"prompt_ids\"");
  const std::string chat =
      "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}\n";
  ExpectRefused(chat, "--chat chatml");
  ExpectRefused("{\"messages\":[]}\n", "\"messages\"", "--chat chatml");
  ExpectRefused("{\"messages\":[{\"role\":\"user\"}]}\n", "\"content\"",
                "--chat chatml");
}

TEST_F(PriorGrowCommandTest, RefusesBeforeItWritesWhatItCouldNotKeep) {
  const std::string prompts = "{\"prompt\":\"a\"}\n";
  ExpectRefused(prompts, "missing.jsonl", "--merge missing.jsonl");
  ExpectRefused(prompts, "too small", "--max-bytes 100");
  ExpectRefused(prompts, "prompts.jsonl",
                "--base '" + dir_.File("prompts.jsonl") + "'");
  const auto nowhere = testing::RunCommand(
      dir_, "prior grow --prompts '" + dir_.File("prompts.jsonl") +
                "' --model '" + model_ + "' --out '" + dir_.File("no/p") + "'");
  EXPECT_THAT(nowhere.err, HasSubstr("no such folder"));
}

TEST_F(PriorGrowCommandTest, RefusesFlagsThatDoNotBelongTogether) {
  const std::string prompts = "{\"prompt\":\"a\"}\n";
  ExpectRefused(prompts, "--server ADDR or --model", "--server 127.0.0.1:1");
  ExpectRefused(prompts, "--tokenizer", "--tokenizer x");
  const auto nothing = Grow(prompts, "");
  EXPECT_THAT(nothing.err, HasSubstr("--server ADDR or --model"));
  const auto untold = Grow(prompts, "--server 127.0.0.1:1 --merge x");
  EXPECT_THAT(untold.err, HasSubstr("--merge: wants --tokenizer"));
}

}  // namespace
}  // namespace foretoken
