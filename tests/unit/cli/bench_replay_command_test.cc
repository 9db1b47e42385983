// `foretoken bench replay` as a user runs it.
#include <string>

#include "common/base/json.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_tokenizer.h"
#include "tests/unit/cli/run_command.h"

namespace foretoken {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kLabel[] =
    "real passes of random weights; accepted by the recording";

class BenchReplayCommandTest : public ::testing::Test {
 protected:
  BenchReplayCommandTest() {
    dir_.Write("tokenizer.json", testing::TinyTokenizerJson());
    const auto row = [](const std::string& id, const std::string& category,
                        const std::string& prompt, const std::string& output) {
      return DumpJson({{"id", id},
                       {"category", category},
                       {"turns",
                        {{{"prompt_text_full", prompt},
                          {"output_text", output}}}}}) +
             "\n";
    };
    dir_.Write("set.jsonl",
               row("a", "copy", "say the quick fox jumps over it",
                   "the quick fox jumps over it and the quick fox jumps") +
                   row("b", "free", "tell a story", "once there was a man"));
    dir_.Write("runs.jsonl",
               R"({"method":"draft","id":"b","new_tokens":[7],)"
               R"("decoding_steps":[3],"accept_lengths":[2,4,1]})");
  }

  testing::CommandResult Run(const std::string& command,
                             const std::string& arguments) {
    return testing::RunCommand(
        dir_, command + " --recorded " + dir_.File("set.jsonl") +
                  " --tokenizer " + dir_.File("tokenizer.json") + " " +
                  arguments);
  }
  testing::CommandResult Bench(const std::string& arguments) {
    return Run(
        "bench replay --backend cpu --threads 1 --random d_model=16,layers=1,"
        "heads=2,kv_heads=1,d_ff=16,vocab=64",
        arguments);
  }

  testing::TempDir dir_;
};

TEST_F(BenchReplayCommandTest, AcceptsWhatReplayAccepts) {
  for (const char* mode : {"--mode prompt_lookup", "--mode ngram_trie",
                           "--mode auto --state online"}) {
    const std::string price =
        std::string(mode).find("auto") != std::string::npos
            ? " --node-price none"
            : "";
    const auto ran = Bench(mode + price + " --json");
    ASSERT_EQ(ran.exit_status, 0) << ran.err;
    const auto want = Run("replay", std::string(mode) + " --json");
    ASSERT_EQ(want.exit_status, 0) << want.err;
    const auto got = ParseJson(ran.out);
    ASSERT_THAT(got, testing::IsOk());
    const Json set = (*ParseJson(want.out))["sets"][0];
    EXPECT_EQ((*got)["label"], kLabel);
    for (const char* field : {"turns", "tokens", "rounds", "accept_length"}) {
      EXPECT_EQ((*got)["all"][field], set[field]) << mode << " " << field;
      for (const char* name : {"copy", "free"}) {
        EXPECT_EQ((*got)["categories"][name][field],
                  set["categories"][name][field])
            << mode << " " << name << " " << field;
      }
    }
    EXPECT_GT((*got)["all"]["accept_length"].get<double>(), 1.0) << mode;
    EXPECT_GT((*got)["all"]["speedup"].get<double>(), 0.0) << mode;
    EXPECT_GT((*got)["pass_costs"].size(), 4u);
  }
}

TEST_F(BenchReplayCommandTest, PricedAutoAndTheTable) {
  const auto ran = Bench("--mode auto --max-tree-nodes 8");
  ASSERT_EQ(ran.exit_status, 0) << ran.err;
  EXPECT_EQ(ran.out.find(kLabel), 0u);
  EXPECT_THAT(ran.out, HasSubstr("node price measured"));
  EXPECT_THAT(ran.out, HasSubstr("\ncopy "));
}

TEST_F(BenchReplayCommandTest, ReplaysADraftModel) {
  const auto ran =
      Bench("--mode recorded --json --steps " + dir_.File("runs.jsonl") +
            " --draft-random d_model=8,layers=1,heads=1,"
            "kv_heads=1,d_ff=8,vocab=64");
  ASSERT_EQ(ran.exit_status, 0) << ran.err;
  const auto json = ParseJson(ran.out);
  ASSERT_THAT(json, testing::IsOk());
  EXPECT_EQ((*json)["method"], "draft");
  EXPECT_EQ((*json)["turns_left_out"], 1);
  EXPECT_EQ((*json)["all"]["tokens"], 6);
  EXPECT_EQ((*json)["all"]["rounds"], 3);
}

TEST_F(BenchReplayCommandTest, ErrorsSayWhatIsWrong) {
  const auto fails = [&](const std::string& arguments, const std::string& why) {
    const auto ran = Bench(arguments);
    EXPECT_EQ(ran.exit_status, 1) << arguments;
    EXPECT_THAT(ran.out, IsEmpty());
    EXPECT_THAT(ran.err, HasSubstr(why));
  };
  fails("--mode telepathy", "unknown mode 'telepathy'");
  fails("--mode crest", "no CREST datastore was given");
  fails("--mode off --prior x", "--prior: mode \"off\" has no use for it");
  fails("--mode off --steps x", "--steps: mode \"off\" has no use for it");
  fails("--mode off --state online", "--state online: mode \"off\"");
  fails("--mode recorded", "want --steps");
  fails("--mode recorded:k=1 --steps " + dir_.File("runs.jsonl"),
        "takes no parameters");
  fails("--mode recorded --draft-tokens 1 --steps " + dir_.File("runs.jsonl"),
        "step 1 accepted 3 draft tokens, but the schedule drafts 1");
  const auto small =
      Run("bench replay --backend cpu --random d_model=16,layers=1,heads=2,"
          "kv_heads=1,d_ff=16,vocab=20",
          "--mode off");
  EXPECT_EQ(small.exit_status, 1);
  EXPECT_THAT(small.err, HasSubstr("but the model's vocabulary is 20"));
  const auto help = testing::RunCommand(dir_, "bench replay --help");
  EXPECT_EQ(help.exit_status, 0);
  EXPECT_THAT(help.out, HasSubstr("llama-3-8b|llama-2-7b"));
}

}  // namespace
}  // namespace foretoken
