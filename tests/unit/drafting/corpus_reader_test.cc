#include "common/drafting/corpus_reader.h"

#include <zlib.h>

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Outcome {
  std::vector<std::string> texts;
  absl::Status status;
  int64_t excluded = 0;
  int64_t invalid = 0;
  int64_t broken_files = 0;
};

Outcome ReadAll(const CorpusOptions& options) {
  Outcome outcome;
  auto reader = CorpusReader::Open(options);
  if (!reader.ok()) {
    outcome.status = reader.status();
    return outcome;
  }
  CorpusDocument document;
  while (true) {
    const absl::StatusOr<bool> more = (*reader)->Next(document);
    outcome.status = more.status();
    if (!more.ok() || !*more) break;
    outcome.texts.push_back(document.text);
  }
  outcome.excluded = (*reader)->excluded();
  outcome.invalid = (*reader)->invalid();
  outcome.broken_files = (*reader)->broken_files();
  if (outcome.status.ok()) {
    EXPECT_EQ((*reader)->done_bytes(), (*reader)->total_bytes());
  }
  return outcome;
}

CorpusOptions Paths(std::vector<std::string> paths) {
  CorpusOptions options;
  options.paths = std::move(paths);
  return options;
}

TEST(CorpusReaderTest, TakesOutputBeforeTextBeforePrompt) {
  TempDir dir;
  const std::string path =
      dir.Write("c.jsonl", R"({"id":1,"prompt":"p","output":"o"})"
                           "\n\n"
                           R"({"text":"t","prompt":"q"})"
                           "\n"
                           R"({"prompt":"r"})"
                           "\n"
                           R"({"output":"","text":"unused"})");
  EXPECT_THAT(ReadAll(Paths({path})).texts, ElementsAre("o", "t", "r"));
}

TEST(CorpusReaderTest, ReadsGzip) {
  TempDir dir;
  const std::string path = dir.File("c.jsonl.gz");
  gzFile file = gzopen(path.c_str(), "wb");
  gzputs(file, "{\"text\":\"zipped\"}\n");
  gzclose(file);
  EXPECT_THAT(ReadAll(Paths({path})).texts, ElementsAre("zipped"));
}

TEST(CorpusReaderTest, LeavesExcludedIdsOutAndCountsThem) {
  TempDir dir;
  CorpusOptions options = Paths({dir.Write("c.jsonl", R"({"id":"a","text":"1"})"
                                                      "\n"
                                                      R"({"id":7,"text":"2"})"
                                                      "\n"
                                                      R"({"id":"b","text":"3"})"
                                                      "\n"
                                                      R"({"text":"4"})")});
  options.exclude_id_files = {
      dir.Write("ids.jsonl", "{\"id\":\"a\",\"turns\":[]}\n{\"id\":7}\n")};
  const Outcome outcome = ReadAll(options);
  EXPECT_THAT(outcome.texts, ElementsAre("3", "4"));
  EXPECT_EQ(outcome.excluded, 2);
}

TEST(CorpusReaderTest, RefusesAnIdFileWithoutIds) {
  TempDir dir;
  CorpusOptions options = Paths({dir.Write("c.jsonl", "")});
  options.exclude_id_files = {dir.Write("ids.jsonl", "{\"id\":1}\n{}\n")};
  EXPECT_THAT(ReadAll(options).status,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("ids.jsonl:2: field \"id\" is missing")));
}

TEST(CorpusReaderTest, GivesATextFileAsItStands) {
  TempDir dir;
  EXPECT_THAT(
      ReadAll(Paths({dir.Write("a.txt", "x\r\n\ny"), dir.Write("b.txt", "z\n"),
                     dir.Write("empty.txt", "")}))
          .texts,
      ElementsAre("x\r\n\ny", "z\n"));
}

TEST(CorpusReaderTest, CutsALargeTextFileAtLineEnds) {
  TempDir dir;
  std::string text;
  while (text.size() < 3 * CorpusReader::kTextDocumentBytes) {
    text += std::string(1000, 'a') + "\n";
  }
  const Outcome outcome = ReadAll(Paths({dir.Write("a.txt", text)}));
  std::string joined;
  for (const std::string& part : outcome.texts) {
    EXPECT_LT(part.size(), CorpusReader::kTextDocumentBytes + 1001);
    EXPECT_EQ(part.back(), '\n');
    joined += part;
  }
  EXPECT_GE(outcome.texts.size(), 3u);
  EXPECT_TRUE(joined == text);
}

TEST(CorpusReaderTest, WalksAFolderInTheOrderOfPaths) {
  TempDir dir;
  dir.Write("tree/b.py", "2");
  dir.Write("tree/a/z.py", "1");
  dir.Write("tree/c.so", "binary");
  dir.Write("tree/d.jsonl", R"({"text":"3"})");
  std::filesystem::create_directory_symlink(dir.path(), dir.File("tree/loop"));
  std::filesystem::create_symlink("/no/such", dir.File("tree/dangling.py"));
  EXPECT_THAT(ReadAll(Paths({dir.File("tree")})).texts,
              ElementsAre("1", "2", "3"));

  CorpusOptions only_python = Paths({dir.File("tree")});
  only_python.suffixes = {".py"};
  EXPECT_THAT(ReadAll(only_python).texts, ElementsAre("1", "2"));
}

TEST(CorpusReaderTest, NamesWhatIsMissing) {
  TempDir dir;
  std::filesystem::create_directory(dir.File("empty"));
  EXPECT_THAT(
      ReadAll(Paths({dir.File("none.txt")})).status,
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("none.txt: open")));
  EXPECT_THAT(ReadAll(Paths({dir.File("empty")})).status,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("empty: no file")));
  EXPECT_THAT(ReadAll(Paths({})).status,
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("path")));
}

struct BadLine {
  const char* line;
  const char* message;
};

TEST(CorpusReaderTest, RefusesBadRowsByFileAndLine) {
  TempDir dir;
  for (const BadLine& bad : {
           BadLine{"{\"text\":", "bad JSON"},
           BadLine{"[1]", "a JSON array, want an object"},
           BadLine{"{\"title\":\"x\"}", "none of the fields"},
           BadLine{"{\"text\":3}", "\"text\" is a number, want a string"},
           BadLine{"{\"text\":\"\xff\"}", "bad JSON"},
           BadLine{"{\"text\":\"\xed\xa0\x80\"}", "bad JSON"},
       }) {
    const std::string path =
        dir.Write("c.jsonl", std::string("{\"text\":\"fine\"}\n") + bad.line +
                                 "\n{\"text\":\"after\"}\n");
    const Outcome outcome = ReadAll(Paths({path}));
    EXPECT_THAT(outcome.texts, ElementsAre("fine"));
    EXPECT_THAT(outcome.status, StatusIs(absl::StatusCode::kInvalidArgument,
                                         AllOf(HasSubstr(path + ":2: "),
                                               HasSubstr(bad.message))));

    CorpusOptions lenient = Paths({path});
    lenient.skip_invalid = true;
    const Outcome skipped = ReadAll(lenient);
    FORETOKEN_EXPECT_OK(skipped.status);
    EXPECT_THAT(skipped.texts, ElementsAre("fine", "after"));
    EXPECT_EQ(skipped.invalid, 1);
  }
}

TEST(CorpusReaderTest, RefusesAHugeLine) {
  TempDir dir;
  CorpusOptions options =
      Paths({dir.Write("c.jsonl", "{\"text\":\"" + std::string(5000, 'a'))});
  options.max_line_bytes = 4096;
  EXPECT_THAT(ReadAll(options).status,
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("c.jsonl:1: line over 4096 bytes")));
}

TEST(CorpusReaderTest, LeavesAHugeLineOutAndGoesOnBehindIt) {
  TempDir dir;
  const std::string huge(5000, 'a');
  CorpusOptions options = Paths(
      {dir.Write("c.jsonl", "{\"text\":\"1\"}\n{\"text\":\"" + huge +
                                "\"}\n{\"text\":\"2\"}\n" + huge),
       dir.Write("d.jsonl", "{\"text\":\"3\"}\n"),
       dir.Write("e.txt", "a\n" + huge + "\nb\n"), dir.Write("f.txt", "4")});
  options.max_line_bytes = 4096;
  options.skip_invalid = true;
  const Outcome outcome = ReadAll(options);
  FORETOKEN_EXPECT_OK(outcome.status);
  EXPECT_THAT(outcome.texts, ElementsAre("1", "2", "3", "4"));
  EXPECT_EQ(outcome.invalid, 3);
  EXPECT_EQ(outcome.broken_files, 0);
}

TEST(CorpusReaderTest, LeavesOneBadDocumentOfALargeTextFileOut) {
  TempDir dir;
  std::string part;
  while (part.size() < CorpusReader::kTextDocumentBytes) {
    part += std::string(999, 'a') + "\n";
  }
  std::string bad = part;
  bad[bad.size() / 2] = '\xff';
  CorpusOptions options = Paths({dir.Write("a.txt", part + bad + part)});
  options.skip_invalid = true;
  const Outcome outcome = ReadAll(options);
  FORETOKEN_EXPECT_OK(outcome.status);
  ASSERT_EQ(outcome.texts.size(), 2u);
  EXPECT_TRUE(outcome.texts[0] == part);
  EXPECT_TRUE(outcome.texts[1] == part);
  EXPECT_EQ(outcome.invalid, 1);
}

TEST(CorpusReaderTest, NoticesAGzipFileThatWasCutOff) {
  TempDir dir;
  const std::string path = dir.File("c.jsonl.gz");
  gzFile file = gzopen(path.c_str(), "wb");
  gzputs(file, "{\"text\":\"first\"}\n");
  gzflush(file, Z_SYNC_FLUSH);
  for (int i = 0; i < 1000; ++i) gzputs(file, "{\"text\":\"more\"}\n");
  gzclose(file);
  // The data are whole; half of the checksum behind them is gone.
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 4);
  CorpusOptions options = Paths({path, dir.Write("d.txt", "next")});
  EXPECT_THAT(ReadAll(options).status,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("c.jsonl.gz: broken gzip stream")));
  options.skip_invalid = true;
  const Outcome outcome = ReadAll(options);
  FORETOKEN_EXPECT_OK(outcome.status);
  EXPECT_EQ(outcome.texts.size(), 1002u);
  EXPECT_EQ(outcome.texts.back(), "next");
  EXPECT_EQ(outcome.invalid, 1);
  EXPECT_EQ(outcome.broken_files, 1);
}

TEST(CorpusReaderTest, RefusesInvalidUtf8InTextByLineAndByte) {
  TempDir dir;
  const std::string path = dir.Write("a.py", "fine\nna\xefve\n");
  EXPECT_THAT(ReadAll(Paths({path})).status,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(path + ":2: invalid UTF-8 at byte 3")));
  CorpusOptions lenient = Paths({path, dir.Write("b.py", "b")});
  lenient.skip_invalid = true;
  const Outcome outcome = ReadAll(lenient);
  EXPECT_THAT(outcome.texts, ElementsAre("b"));
  EXPECT_EQ(outcome.invalid, 1);
}

TEST(CorpusReaderTest, ReportsABrokenGzipStream) {
  TempDir dir;
  const std::string path =
      dir.Write("c.jsonl.gz", std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03K", 11));
  EXPECT_THAT(ReadAll(Paths({path})).status,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("c.jsonl.gz"), HasSubstr("gzip"))));
  CorpusOptions lenient = Paths({path});
  lenient.skip_invalid = true;
  EXPECT_THAT(ReadAll(lenient).texts, IsEmpty());
}

}  // namespace
}  // namespace foretoken
