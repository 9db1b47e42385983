// `foretoken crest` against a real PostgreSQL, as a person would use it.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "common/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/private_postgres.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_tokenizer.h"

namespace foretoken::crest {
namespace {

using ::foretoken::testing::PrivatePostgres;
using ::foretoken::testing::TempDir;
using ::testing::HasSubstr;

struct Outcome {
  int status = 0;
  std::string output;  // stdout and stderr
};

class CrestCliTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!PrivatePostgres::Installed()) {
      GTEST_SKIP() << "PostgreSQL is not installed on this machine";
    }
    server_ = std::make_unique<PrivatePostgres>();
    setenv("FORETOKEN_POSTGRES_URL", server_->url().c_str(), 1);
    tokenizer_ = dir_.Write("tokenizer.json", testing::TinyTokenizerJson());
    std::string text;
    for (int i = 0; i < 200; ++i) text += "the hen in the inn and a man ";
    corpus_ = dir_.Write("corpus.txt", text);
  }

  static Outcome Crest(const std::string& words) {
    return Foretoken("crest " + words);
  }
  static Outcome Foretoken(const std::string& words) {
    const std::string command =
        std::string(FORETOKEN_BINARY) + " " + words + " 2>&1";
    Outcome outcome;
    FILE* pipe = popen(command.c_str(), "r");
    std::array<char, 4096> chunk;
    while (size_t n = fread(chunk.data(), 1, chunk.size(), pipe)) {
      outcome.output.append(chunk.data(), n);
    }
    outcome.status = pclose(pipe);
    return outcome;
  }
  static Json LastLine(const Outcome& outcome) {
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    const std::string text =
        outcome.output.substr(0, outcome.output.find_last_not_of('\n') + 1);
    const auto json = ParseJson(text.substr(text.find_last_of('\n') + 1));
    EXPECT_THAT(json, testing::IsOk()) << text;
    return json.ok() ? *json : Json();
  }
  std::string BuildWords(const std::string& where) const {
    return "build --corpus " + corpus_ + " --tokenizer " + tokenizer_ +
           " --max-n 3 --top 100 --work " + dir_.File("work") + " " + where;
  }

  TempDir dir_;
  std::unique_ptr<PrivatePostgres> server_;
  std::string tokenizer_;
  std::string corpus_;
};

TEST_F(CrestCliTest, FileAndDatabaseHoldTheSame) {
  const std::string file = dir_.File("x.crest");
  const Json in_file = LastLine(Crest(BuildWords("--out " + file)));
  const Json in_base = LastLine(Crest(BuildWords("--name tiny")));
  EXPECT_EQ(in_file["entries"], in_base["entries"]);
  EXPECT_EQ(LastLine(Crest("stats " + file)), LastLine(Crest("stats tiny")));
  for (const std::string ids : {"2", "49,13,28", "31,6,28,9"}) {
    const Json want =
        LastLine(Crest("lookup --store " + file + " --ids " + ids));
    EXPECT_EQ(want["tokens"].size(), want["parents"].size());
    EXPECT_EQ(want["tokens"].size(), want["counts"].size());
    for (const char* memory : {"0", "1GiB"}) {
      EXPECT_EQ(LastLine(Crest("lookup --store tiny --index-memory " +
                               std::string(memory) + " --ids " + ids)),
                want);
    }
  }
  for (const std::string& store : {file, std::string("tiny")}) {
    EXPECT_EQ(
        LastLine(Crest("verify " + store + " --tokenizer " + tokenizer_))["ok"],
        true);
  }
}

TEST_F(CrestCliTest, IndexesWithWhatTheBuildWasToldTo) {
  const std::string methods =
      "SELECT amname FROM pg_index JOIN pg_class c ON c.oid = indexrelid "
      "JOIN pg_am a ON a.oid = c.relam WHERE indrelid = "
      "'foretoken_crest_rows_";
  LastLine(Crest(BuildWords("--name tiny")));
  EXPECT_EQ(server_->Sql(methods + "1'::regclass"), "btree\n");
  const Json tree =
      LastLine(Crest("lookup --store tiny --index-memory 0 --ids 49,13,28"));
  LastLine(Crest(BuildWords("--name tiny --index hash")));
  EXPECT_EQ(server_->Sql(methods + "2'::regclass"), "hash\n");
  EXPECT_EQ(
      LastLine(Crest("lookup --store tiny --index-memory 0 --ids 49,13,28")),
      tree);
}

TEST_F(CrestCliTest, ListsAndDrops) {
  EXPECT_EQ(LastLine(Crest("list")), Json::array());
  LastLine(Crest(BuildWords("--name tiny")));
  LastLine(Crest(BuildWords("--name tiny")));
  const Json list = LastLine(Crest("list"));
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0]["current"], true);
  EXPECT_EQ(list[1]["current"], false);
  EXPECT_EQ(Crest("drop tiny").status, 0);
  EXPECT_EQ(LastLine(Crest("list")), Json::array());
  const Outcome gone = Crest("stats tiny");
  EXPECT_NE(gone.status, 0);
  EXPECT_THAT(gone.output, HasSubstr("\"tiny\": no version is published"));
}

TEST_F(CrestCliTest, RefusesBadRequestsByName) {
  const struct {
    std::string words;
    const char* message;
  } cases[] = {
      {BuildWords("--name Bad.Name"), "datastore name \"Bad.Name\""},
      {BuildWords("--memory 1XB --out " + dir_.File("y")), "--memory: \"1XB\""},
      {BuildWords("--index hash --out " + dir_.File("y")), "--index: "},
      {BuildWords("--index gin --name tiny"), "--index: gin"},
      {BuildWords(""), "want one of --out and --name"},
      {BuildWords("--only-n 2 --out " + dir_.File("y")),
       "want one of --max-n and --only-n"},
      {BuildWords("--only-n 9 --out " + dir_.File("y")),
       "--only-n: Value 9 not in range"},
      {BuildWords("--threads 0 --out " + dir_.File("y")), "--threads: Value 0"},
      {BuildWords("--min-count -1 --out " + dir_.File("y")),
       "--min-count: Value -1"},
      {BuildWords("--seed -1 --out " + dir_.File("y")), "--seed: "},
      {BuildWords("--max-line 7 --out " + dir_.File("y")),
       "max_line_bytes is 7"},
      {"lookup --store " + corpus_ + " --ids 1", "corpus.txt: datastore"},
      {"lookup --store tiny --ids 1,-2", "--ids: \"-2\""},
  };
  for (const auto& bad : cases) {
    const Outcome outcome = Crest(bad.words);
    EXPECT_NE(outcome.status, 0) << bad.words;
    EXPECT_THAT(outcome.output, HasSubstr(bad.message));
  }
}

TEST_F(CrestCliTest, ChecksTheTargetBeforeTheWork) {
  const Outcome no_folder = Crest(BuildWords("--out /none/x.crest"));
  EXPECT_NE(no_folder.status, 0);
  EXPECT_THAT(no_folder.output, HasSubstr("/none/x.crest"));
  server_->StopCleanly();
  const Outcome no_server = Crest(BuildWords("--name tiny"));
  EXPECT_NE(no_server.status, 0);
  EXPECT_THAT(no_server.output, HasSubstr("PostgreSQL: connect"));
  server_->Start("-c default_transaction_read_only=on");
  const Outcome read_only = Crest(BuildWords("--name tiny"));
  EXPECT_NE(read_only.status, 0);
  EXPECT_THAT(read_only.output, HasSubstr("read-only transaction"));
  EXPECT_FALSE(std::filesystem::exists(dir_.File("work")));
}

TEST_F(CrestCliTest, StatsRefusesASnapshotThatWasCutOff) {
  const std::string file = dir_.File("x.crest");
  LastLine(Crest(BuildWords("--out " + file)));
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  const Outcome outcome = Crest("stats " + file);
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.output, HasSubstr("x.crest: "));
}

TEST_F(CrestCliTest, ListShowsADamagedVersionAmongTheOthers) {
  LastLine(Crest(BuildWords("--name hurt")));
  LastLine(Crest(BuildWords("--name sound")));
  server_->Sql(
      "UPDATE foretoken_crest_versions SET meta = 'x' WHERE name = 'hurt'");
  const Json list = LastLine(Crest("list"));
  ASSERT_EQ(list.size(), 2u);
  EXPECT_TRUE(list[0].contains("damage"));
  EXPECT_GT(list[1]["entries"], 0);
}

TEST_F(CrestCliTest, SaysWhatOfTheCorpusItLeftOut) {
  const std::string bad = dir_.Write("bad.jsonl.gz", "\x1f\x8b\x08");
  const Outcome outcome =
      Crest("build --corpus " + corpus_ + " --corpus " + bad + " --tokenizer " +
            tokenizer_ + " --max-n 3 --top 100 --skip-invalid --out " +
            dir_.File("x"));
  const Json report = LastLine(outcome);
  EXPECT_EQ(report["invalid_documents"], 1);
  EXPECT_EQ(report["broken_files"], 1);
  EXPECT_THAT(outcome.output, HasSubstr("bad.jsonl.gz: broken gzip stream"));
}

TEST_F(CrestCliTest, ReplayFailsWhereALookupDoes) {
  LastLine(Crest(BuildWords("--name tiny")));
  const std::string set = dir_.Write(
      "set.jsonl",
      R"({"id":"a","category":"x","turns":[{"prompt_text_full":"the",)"
      R"("output_text":" hen in the inn"}]})"
      "\n");
  const std::string words =
      "replay --recorded " + set + " --tokenizer " + tokenizer_ +
      " --mode crest --crest tiny --index-memory 0 --json";
  EXPECT_GT(LastLine(Foretoken(words))["sets"][0]["accept_length"], 1.0);
  server_->Sql("UPDATE foretoken_crest_rows_1 SET record = 'x'");
  const Outcome failed = Foretoken(words);
  EXPECT_NE(failed.status, 0);
  EXPECT_THAT(failed.output, HasSubstr("record: "));
}

TEST_F(CrestCliTest, ReplayRefusesFlagsThatItsModeIgnores) {
  for (const std::string flag : {"--crest x", "--index-memory 1GiB"}) {
    const Outcome outcome = Foretoken("replay --recorded x --tokenizer " +
                                      tokenizer_ + " --mode off " + flag);
    EXPECT_NE(outcome.status, 0) << flag;
    EXPECT_THAT(outcome.output, HasSubstr("mode \"off\" has no use for it"));
  }
}

}  // namespace
}  // namespace foretoken::crest
