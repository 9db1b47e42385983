#include "common/base/file.h"

#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

TEST(ReadFileTest, ReadsPlainBytesUnchanged) {
  testing::TempDir dir;
  const std::string bytes("a\0b\xff\n", 5);
  const auto got = ReadFile(dir.Write("x", bytes));
  FORETOKEN_ASSERT_OK(got);
  EXPECT_EQ(*got, bytes);
}

TEST(ReadFileTest, NamesAMissingFile) {
  EXPECT_THAT(ReadFile("/no/such/file"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/no/such")));
}

TEST(ReadFileTest, RefusesFilesOverTheLimit) {
  testing::TempDir dir;
  EXPECT_THAT(ReadFile(dir.Write("x", std::string(100, 'a')), 99),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("99")));
}

TEST(ReadFileTest, RefusesATruncatedGzipStream) {
  testing::TempDir dir;
  const std::string header("\x1f\x8b\x08\0\0\0\0\0\0\x03\x4b", 11);
  EXPECT_THAT(ReadFile(dir.Write("x.gz", header)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("gzip")));
}

TEST(ReadFileTest, RefusesWhatIsNoRegularFileWithoutWaitingForIt) {
  testing::TempDir dir;
  // Nobody writes into the pipe: opening it in the usual way would block.
  ASSERT_EQ(mkfifo(dir.File("config.json").c_str(), 0600), 0);
  ASSERT_EQ(symlink("config.json", dir.File("link").c_str()), 0);
  for (const std::string& path : {dir.File("config.json"), dir.File("link"),
                                  dir.path(), std::string("/dev/zero")}) {
    EXPECT_THAT(ReadFile(path), StatusIs(absl::StatusCode::kInvalidArgument,
                                         path + ": not a regular file"));
  }
  // A link to a regular file is one, as in a mounted secret.
  ASSERT_EQ(symlink(dir.Write("x", "a").c_str(), dir.File("good").c_str()), 0);
  EXPECT_EQ(ReadFile(dir.File("good")).value(), "a");
}

TEST(LineReaderTest, ReadsAPipe) {
  testing::TempDir dir;
  ASSERT_EQ(mkfifo(dir.File("pipe").c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(dir.File("pipe")) << "a\nb"; });
  const auto reader = LineReader::Open(dir.File("pipe"));
  FORETOKEN_ASSERT_OK(reader);
  std::string line;
  EXPECT_TRUE((*reader)->Next(line).value());
  EXPECT_EQ(line, "a");
  EXPECT_TRUE((*reader)->Next(line).value());
  EXPECT_EQ(line, "b");
  writer.join();
}

std::string Gzip(const std::string& path, const std::string& text) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(ReadFileTest, RefusesAGzipStreamCutAnywhere) {
  testing::TempDir dir;
  // Long runs: the last bytes of input give more output than any buffer holds,
  // so that the input has ended long before the output has.
  const std::string text(600 << 10, 'a');
  const std::string bytes = Gzip(dir.File("whole.gz"), text);
  const auto whole = ReadFile(dir.File("whole.gz"));
  FORETOKEN_ASSERT_OK(whole);
  EXPECT_TRUE(*whole == text);
  // Every point of the header and of the trailer, and some between.
  for (size_t kept = 0; kept < bytes.size();
       kept += kept < 24 || kept + 24 >= bytes.size() ? 1 : 23) {
    EXPECT_THAT(ReadFile(dir.Write("cut.gz", bytes.substr(0, kept))),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("cut.gz: broken gzip stream")))
        << kept << " of " << bytes.size();
  }
}

TEST(ReadFileTest, ReadsJoinedGzipMembersAndRefusesWhatIsNone) {
  testing::TempDir dir;
  const std::string one = Gzip(dir.File("a.gz"), "one\n");
  const std::string two = Gzip(dir.File("b.gz"), "two\n");
  const auto joined = ReadFile(dir.Write("c.gz", one + two));
  FORETOKEN_ASSERT_OK(joined);
  EXPECT_EQ(*joined, "one\ntwo\n");
  const auto padded = ReadFile(dir.Write("c.gz", one + std::string(512, '\0')));
  FORETOKEN_ASSERT_OK(padded);
  EXPECT_EQ(*padded, "one\n");
  EXPECT_THAT(ReadFile(dir.Write("c.gz", one + "x" + two)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("c.gz: broken gzip stream")));
}

TEST(LineReaderTest, GivesEveryLineWithAndWithoutAFinalNewline) {
  testing::TempDir dir;
  for (const std::string text : {"a\n\nbc", "a\n\nbc\n"}) {
    auto reader = LineReader::Open(dir.Write("x", text));
    FORETOKEN_ASSERT_OK(reader);
    std::string line;
    std::string joined;
    while (*(*reader)->Next(line)) joined += "[" + line + "]";
    EXPECT_EQ(joined, "[a][][bc]");
    EXPECT_EQ((*reader)->line_number(), 3);
  }
}

TEST(LineReaderTest, TellsWhetherALineEndedInANewline) {
  testing::TempDir dir;
  auto reader = LineReader::Open(dir.Write("x", "a\nb"));
  FORETOKEN_ASSERT_OK(reader);
  std::string line;
  ASSERT_TRUE(*(*reader)->Next(line));
  EXPECT_TRUE((*reader)->terminated());
  ASSERT_TRUE(*(*reader)->Next(line));
  EXPECT_FALSE((*reader)->terminated());
}

TEST(LineReaderTest, RefusesALineOverTheLimitByFileAndLine) {
  testing::TempDir dir;
  const std::string path = dir.Write("x", "ab\n" + std::string(100, 'a'));
  auto reader = LineReader::Open(path, 99);
  FORETOKEN_ASSERT_OK(reader);
  std::string line;
  ASSERT_TRUE(*(*reader)->Next(line));
  EXPECT_THAT((*reader)->Next(line),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr(path + ":2: line over 99 bytes")));
}

TEST(LineReaderTest, GoesOnAfterALineOverTheLimit) {
  testing::TempDir dir;
  // The second is longer than the reader's buffer.
  for (const size_t length : {size_t{100}, size_t{1} << 20}) {
    const std::string path =
        dir.Write("x", "ab\n" + std::string(length, 'a') + "\ncd\n" +
                           std::string(length, 'b'));
    auto reader = LineReader::Open(path, 99);
    FORETOKEN_ASSERT_OK(reader);
    std::string line;
    ASSERT_TRUE(*(*reader)->Next(line));
    EXPECT_FALSE((*reader)->Next(line).ok());
    const auto after = (*reader)->Next(line);
    FORETOKEN_ASSERT_OK(after);
    EXPECT_TRUE(*after);
    EXPECT_EQ(line, "cd");
    EXPECT_EQ((*reader)->line_number(), 3);
    EXPECT_THAT((*reader)->Next(line),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         HasSubstr(path + ":4: line over")));
    const auto end = (*reader)->Next(line);
    FORETOKEN_ASSERT_OK(end);
    EXPECT_FALSE(*end);
  }
}

TEST(WriteFileAtomicallyTest, ReplacesAndLeavesNoTemporaryFile) {
  testing::TempDir dir;
  const std::string path = dir.Write("x", "old");
  FORETOKEN_ASSERT_OK(WriteFileAtomically(path, "new"));
  EXPECT_EQ(*ReadFile(path), "new");
  EXPECT_THAT(WriteFileAtomically("/no/such/dir/x", "y"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/no/such")));
}

}  // namespace
}  // namespace foretoken
