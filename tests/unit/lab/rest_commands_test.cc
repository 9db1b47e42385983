// `foretoken-lab replay-rest` and `build-rest` as a user runs them.
#include <string>

#include "common/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_tokenizer.h"
#include "tests/unit/cli/run_command.h"

namespace foretoken {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RestCommandsTest : public ::testing::Test {
 protected:
  RestCommandsTest() {
    dir_.Write("tokenizer.json", testing::TinyTokenizerJson());
    dir_.Write("set.jsonl",
               R"({"id":"a","category":"copy","turns":[{"prompt_text_full":)"
               R"("say the quick fox jumps over it",)"
               R"("output_text":"the quick fox jumps over it"}]})"
               "\n");
    dir_.Write("corpus.jsonl", R"({"id":"c","output":"the quick fox jumps"})"
                               "\n"
                               R"({"id":"a","output":"over it"})"
                               "\n");
  }

  testing::CommandResult Lab(const std::string& arguments) {
    return testing::RunBinary(FORETOKEN_LAB_BINARY, dir_, arguments);
  }
  testing::CommandResult Replay(const std::string& arguments) {
    return Lab("replay-rest --json --recorded " + dir_.File("set.jsonl") +
               " --tokenizer " + dir_.File("tokenizer.json") + " " + arguments);
  }

  testing::TempDir dir_;
};

TEST_F(RestCommandsTest, ASnapshotDraftsAsItsCorpusDoes) {
  const auto built =
      Lab("build-rest --corpus " + dir_.File("corpus.jsonl") + " --tokenizer " +
          dir_.File("tokenizer.json") + " --out " + dir_.File("x.rest"));
  ASSERT_EQ(built.exit_status, 0) << built.err;
  EXPECT_EQ((*ParseJson(built.out))["corpus_documents"], 2);
  for (const std::string mode : {"", " --mode rest:min_n=1,exact=1"}) {
    const auto corpus =
        Replay("--rest-corpus " + dir_.File("corpus.jsonl") + mode);
    ASSERT_EQ(corpus.exit_status, 0) << corpus.err;
    const auto snapshot = Replay("--rest " + dir_.File("x.rest") + mode);
    ASSERT_EQ(snapshot.exit_status, 0) << snapshot.err;
    const Json want = *ParseJson(corpus.out);
    const Json got = *ParseJson(snapshot.out);
    EXPECT_EQ(got["mode"], mode.empty() ? "rest" : "rest:min_n=1,exact=1");
    EXPECT_GT(got["sets"][0]["accept_length"].get<double>(), 1.0);
    EXPECT_EQ(got["sets"], want["sets"]);
  }
}

TEST_F(RestCommandsTest, LeavesOutTheTextThatItIsMeasuredOn) {
  const auto all =
      Replay("--mode rest:min_n=1 --rest-corpus " + dir_.File("corpus.jsonl"));
  const auto others =
      Replay("--mode rest:min_n=1 --rest-corpus " + dir_.File("corpus.jsonl") +
             " --exclude-ids " + dir_.File("set.jsonl"));
  ASSERT_EQ(others.exit_status, 0) << others.err;
  EXPECT_LT((*ParseJson(others.out))["sets"][0]["accept_length"],
            (*ParseJson(all.out))["sets"][0]["accept_length"]);
}

TEST_F(RestCommandsTest, ErrorsSayWhatIsWrong) {
  const auto fails = [&](const std::string& arguments, const std::string& why) {
    const auto ran = Replay(arguments);
    EXPECT_EQ(ran.exit_status, 1) << arguments;
    EXPECT_THAT(ran.out, IsEmpty());
    EXPECT_THAT(ran.err, HasSubstr("foretoken-lab: "));
    EXPECT_THAT(ran.err, HasSubstr(why));
  };
  fails("", "mode 'rest': no REST datastore was given");
  fails("--mode auto", "--mode auto: want rest:");
  fails("--rest " + dir_.File("set.jsonl"), "not a REST snapshot");
}

}  // namespace
}  // namespace foretoken
