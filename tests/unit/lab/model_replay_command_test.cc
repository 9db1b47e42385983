// `foretoken-lab replay` as a user runs it.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/base/file.h"
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
using ::testing::SizeIs;
using ::testing::StartsWith;

std::vector<std::string> Lines(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

constexpr char kLabel[] =
    "real passes of random weights; accepted by the recording";

class ModelReplayCommandTest : public ::testing::Test {
 protected:
  ModelReplayCommandTest() {
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
    dir_.Write(
        "corpus.jsonl",
        DumpJson({{"id", "c"}, {"output", "the quick fox jumps"}}) + "\n");
    dir_.Write("runs.jsonl",
               R"({"method":"draft","id":"b","new_tokens":[7],)"
               R"("decoding_steps":[3],"accept_lengths":[2,4,1]})");
  }

  // What both command lines need, and `arguments`.
  std::string Flags(const std::string& arguments) {
    return " --recorded " + dir_.File("set.jsonl") + " --tokenizer " +
           dir_.File("tokenizer.json") + " " + arguments;
  }
  testing::CommandResult Lab(const std::string& arguments) {
    return testing::RunBinary(FORETOKEN_LAB_BINARY, dir_, arguments);
  }
  testing::CommandResult Bench(const std::string& arguments) {
    return Lab(
        "replay --backend cpu --threads 1 --random d_model=16,layers=1,"
        "heads=2,kv_heads=1,d_ff=16,vocab=64" +
        Flags(arguments));
  }
  // The mode without a model: `replay`, or `replay-rest` for REST.
  testing::CommandResult Replay(const std::string& arguments) {
    return arguments.find("rest:") == std::string::npos
               ? testing::RunCommand(dir_, "replay" + Flags(arguments))
               : Lab("replay-rest" + Flags(arguments));
  }

  testing::TempDir dir_;
};

TEST_F(ModelReplayCommandTest, AcceptsWhatReplayAccepts) {
  const std::string rest =
      "--mode rest:min_n=1 --rest-corpus " + dir_.File("corpus.jsonl");
  for (const std::string& mode :
       {std::string("--mode prompt_lookup"), std::string("--mode ngram_trie"),
        rest, std::string("--mode auto --state online")}) {
    const std::string price =
        mode.find("auto") != std::string::npos ? " --node-price none" : "";
    const auto ran = Bench(mode + price + " --json");
    ASSERT_EQ(ran.exit_status, 0) << ran.err;
    const auto want = Replay(mode + " --json");
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

TEST_F(ModelReplayCommandTest, PricedAutoAndTheTable) {
  const auto ran = Bench("--mode auto --max-tree-nodes 8");
  ASSERT_EQ(ran.exit_status, 0) << ran.err;
  EXPECT_EQ(ran.out.find(kLabel), 0u);
  EXPECT_THAT(ran.out, HasSubstr("node price measured"));
  EXPECT_THAT(ran.out, HasSubstr("\ncopy "));
}

TEST_F(ModelReplayCommandTest, ReplaysADraftModel) {
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

TEST_F(ModelReplayCommandTest, ErrorsSayWhatIsWrong) {
  const auto fails = [&](const std::string& arguments, const std::string& why) {
    const auto ran = Bench(arguments);
    EXPECT_EQ(ran.exit_status, 1) << arguments;
    EXPECT_THAT(ran.out, IsEmpty());
    EXPECT_THAT(ran.err, HasSubstr(why));
  };
  fails("--mode telepathy", "unknown mode 'telepathy'");
  fails("--mode crest", "no CREST datastore was given");
  fails("--mode off --prior x", "--prior: mode \"off\" has no use for it");
  fails("--mode off --rest-corpus x",
        "--rest-corpus: mode \"off\" has no use for it");
  fails("--mode off --exclude-ids x",
        "--exclude-ids: mode \"off\" has no use for it");
  fails("--mode off --steps x", "--steps: mode \"off\" has no use for it");
  fails("--mode off --state online", "--state online: mode \"off\"");
  fails("--mode recorded", "want --steps");
  fails("--mode recorded:k=1 --steps " + dir_.File("runs.jsonl"),
        "takes no parameters");
  fails("--mode recorded --draft-tokens 1 --steps " + dir_.File("runs.jsonl"),
        "step 1 accepted 3 draft tokens, but the schedule drafts 1");
  fails("--mode auto --state online --window 4",
        "--state online: want whole outputs to learn from");
  fails("--mode recorded --window 4 --steps " + dir_.File("runs.jsonl"),
        "--window: mode recorded replays the steps of whole outputs");
  const auto small =
      Lab("replay --backend cpu --random d_model=16,layers=1,heads=2,"
          "kv_heads=1,d_ff=16,vocab=20" +
          Flags("--mode off"));
  EXPECT_EQ(small.exit_status, 1);
  EXPECT_THAT(small.err, HasSubstr("but the model's vocabulary is 20"));
  const auto help = Lab("replay --help");
  EXPECT_EQ(help.exit_status, 0);
  EXPECT_THAT(help.out, HasSubstr("llama-3-8b|llama-2-7b"));
}

TEST_F(ModelReplayCommandTest, VariantsAreMeasuredBesideOneAnother) {
  dir_.Write("variants.json",
             R"([{"name": "lookup", "mode": "prompt_lookup"},
                 {"name": "rest", "mode": "rest:min_n=1", "rest_corpus": [")" +
                 dir_.File("corpus.jsonl") + R"("]},
                 {"name": "whole trees", "mode": "auto",
                  "node_price": "none"},
                 {"name": "small trees", "mode": "auto", "max_tree_nodes": 2,
                  "node_price": "none"},
                 {"name": "auto", "mode": "auto"}])");
  const std::string flags = "--variants " + dir_.File("variants.json") +
                            " --turns " + dir_.File("turns.jsonl") + " --json";
  const auto first = Bench(flags + " --max-requests 1");
  ASSERT_EQ(first.exit_status, 0) << first.err;
  const std::string turns = *ReadFile(dir_.File("turns.jsonl"));
  EXPECT_THAT(Lines(turns), SizeIs(2));  // the header and a turn
  const auto ran = Bench(flags);
  ASSERT_EQ(ran.exit_status, 0) << ran.err;
  // The first turn was not measured again.
  const std::string more = *ReadFile(dir_.File("turns.jsonl"));
  EXPECT_THAT(Lines(more), SizeIs(3));
  EXPECT_THAT(more, StartsWith(turns));

  const std::vector<std::string> lines = Lines(ran.out);
  ASSERT_THAT(lines, SizeIs(5));
  std::vector<Json> reports;
  for (const std::string& line : lines) reports.push_back(*ParseJson(line));
  const std::vector<std::string> alone = {
      "--mode prompt_lookup",
      "--mode rest:min_n=1 --rest-corpus " + dir_.File("corpus.jsonl"),
      "--mode auto"};
  for (size_t i = 0; i < alone.size(); ++i) {
    const auto want = Replay(alone[i] + " --json");
    ASSERT_EQ(want.exit_status, 0) << want.err;
    EXPECT_EQ(reports[i]["all"]["rounds"],
              (*ParseJson(want.out))["sets"][0]["rounds"]);
  }
  EXPECT_EQ(reports[0]["name"], "lookup");
  EXPECT_EQ(reports[2]["node_price"], "none");
  EXPECT_EQ(reports[4]["node_price"], "measured");
  EXPECT_EQ(reports[3]["max_tree_nodes"], 2);
  EXPECT_EQ(reports[4]["max_tree_nodes"], 64);
  EXPECT_LE(reports[3]["all"]["mean_rows"], 3.0);
  EXPECT_GT(reports[2]["all"]["mean_rows"], 3.0);
  for (const Json& report : reports) {
    EXPECT_EQ(report["all"]["turns"], 2);
    EXPECT_EQ(report["all"]["plain_tok_s"], reports[0]["all"]["plain_tok_s"]);
  }

  const auto other = Bench("--mode off --turns " + dir_.File("turns.jsonl"));
  EXPECT_NE(other.exit_status, 0);
  EXPECT_THAT(other.err, HasSubstr("the turns are of another replay"));
}

TEST_F(ModelReplayCommandTest, DecodesAWindowOfEachOutput) {
  const std::string flags =
      "--mode prompt_lookup --json --turns " + dir_.File("turns.jsonl");
  const auto ran = Bench(flags + " --window 3 --window-seed 7");
  ASSERT_EQ(ran.exit_status, 0) << ran.err;
  const std::vector<std::string> lines =
      Lines(*ReadFile(dir_.File("turns.jsonl")));
  ASSERT_THAT(lines, SizeIs(3));
  for (const size_t i : {1, 2}) {
    const Json turn = *ParseJson(lines[i]);
    EXPECT_EQ(turn["tokens"], 3);
    EXPECT_GT(turn["length"], 3);
    EXPECT_EQ(turn["prefill"], 0.0);
    EXPECT_GE(turn["variants"][0]["tokens"], 3);
  }
  const auto other = Bench(flags + " --window 3 --window-seed 8");
  EXPECT_NE(other.exit_status, 0);
  EXPECT_THAT(other.err, HasSubstr("the turns are of another replay"));
}

TEST_F(ModelReplayCommandTest, AutoTakesADatastoreAsOneMoreSource) {
  const auto built = testing::RunCommand(
      dir_, "crest build --corpus " + dir_.File("corpus.jsonl") +
                " --tokenizer " + dir_.File("tokenizer.json") +
                " --max-n 2 --top 100 --min-count 1 --out " +
                dir_.File("small.crest"));
  ASSERT_EQ(built.exit_status, 0) << built.err;
  const std::string flags = "--mode auto --crest " + dir_.File("small.crest");
  EXPECT_EQ(Bench(flags).exit_status, 0);
  const auto whole = Bench(flags + " --node-price none");
  EXPECT_EQ(whole.exit_status, 1);
  EXPECT_THAT(whole.err, HasSubstr("takes a datastore at --node-price"));
}

TEST_F(ModelReplayCommandTest, KeptStateDoesNotGoOnBehindMeasuredTurns) {
  const std::string flags =
      "--mode auto --state online --turns " + dir_.File("turns.jsonl");
  const auto first = Bench(flags + " --max-requests 1");
  ASSERT_EQ(first.exit_status, 0) << first.err;
  const auto more = Bench(flags);
  EXPECT_EQ(more.exit_status, 1);
  EXPECT_THAT(more.err, HasSubstr("has 1 of 2 turns"));
  // All were measured: they are reported again.
  EXPECT_EQ(Bench(flags + " --max-requests 1").exit_status, 0);
}

TEST_F(ModelReplayCommandTest, VariantsThatAreWrongAreNamed) {
  const std::pair<const char*, const char*> kCases[] = {
      {"[]", "want an array of 1 to 32 variants"},
      {R"([{"name": "a"}])", "[0]: want a name and a mode"},
      {R"([{"name": "a", "mode": "off"}, {"name": "a", "mode": "off"}])",
       "[1]: another variant is named"},
      {R"([{"name": "a", "mode": "off", "treads": 2}])",
       "[0]: treads: no such field"},
      {R"([{"name": "a", "mode": "off", "prior": 2}])",
       "[0]: prior: want a string"},
      {R"([{"name": "a", "mode": "rest", "rest_corpus": "f"}])",
       "[0]: rest_corpus: want an array"},
      {R"([{"name": "a", "mode": "auto", "node_price": "low"}])",
       "node_price: want measured or none"},
      {R"([{"name": "a", "mode": "auto", "max_tree_nodes": 65}])",
       "max_tree_nodes: want a number from 1 to 64"},
      {R"([{"name": "a", "mode": "auto", "max_tree_nodes": 0}])",
       "max_tree_nodes: want a number from 1 to 64"},
      {R"([{"name": "a", "mode": "off", "prior": "f"}])",
       "a: --prior: mode \"off\" has no use for it"},
      {R"([{"name": "a", "mode": "auto", "crest": "f", "node_price": "none"}])",
       "a: --crest: mode \"auto\" takes a datastore at --node-price"},
      {R"([{"name": "a", "mode": "recorded"}])",
       "mode recorded leaves turns out"}};
  for (const auto& [json, error] : kCases) {
    dir_.Write("variants.json", json);
    const auto ran = Bench("--variants " + dir_.File("variants.json"));
    EXPECT_NE(ran.exit_status, 0) << json;
    EXPECT_THAT(ran.err, HasSubstr(error)) << json;
  }
  EXPECT_NE(Bench("").exit_status, 0);
  EXPECT_NE(Bench("--mode off --variants x").exit_status, 0);
  EXPECT_NE(Bench("--variants x --prior y").exit_status, 0);
}

}  // namespace
}  // namespace foretoken
