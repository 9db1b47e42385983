#include "common/base/file.h"

#include <string>

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
