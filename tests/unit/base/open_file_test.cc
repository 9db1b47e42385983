#include "common/base/open_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/mapped_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::testing::HasSubstr;

std::string Text(absl::Span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(OpenFileTest, ReadsWhatIsThere) {
  const TempDir dir;
  const auto file = OpenFile::Open(dir.Write("f", "0123456789"));
  FORETOKEN_ASSERT_OK(file);
  EXPECT_EQ(file->size(), 10u);
  std::vector<uint8_t> bytes(4);
  EXPECT_EQ(*file->ReadAt(3, absl::MakeSpan(bytes)), 4u);
  EXPECT_EQ(Text(bytes), "3456");
  EXPECT_EQ(*file->ReadAt(8, absl::MakeSpan(bytes)), 2u);
  std::filesystem::resize_file(dir.File("f"), 5);
  EXPECT_EQ(*file->ReadAt(3, absl::MakeSpan(bytes)), 2u);
  EXPECT_EQ(*file->ReadAt(8, absl::MakeSpan(bytes)), 0u);
}

TEST(OpenFileTest, NamesWhatIsMissingOrNoFile) {
  const TempDir dir;
  EXPECT_THAT(OpenFile::Open(dir.File("none")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
  EXPECT_THAT(
      OpenFile::Open(dir.path()),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(dir.path())));
  // (A pipe without a writer.)
  ASSERT_EQ(mkfifo(dir.File("model.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(OpenFile::Open(dir.File("model.safetensors")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("not a regular file")));
}

TEST(MappedFileTest, ReadBytesStayWhenTheFileIsTruncated) {
  const TempDir dir;
  const std::string text(100'000, 'x');
  const auto file = MappedFile::Read(dir.Write("f", text));
  FORETOKEN_ASSERT_OK(file);
  std::filesystem::resize_file(dir.File("f"), 0);
  EXPECT_EQ(Text(file->bytes()), text);
  const auto empty = MappedFile::Read(dir.File("f"));
  FORETOKEN_ASSERT_OK(empty);
  EXPECT_TRUE(empty->bytes().empty());
}

}  // namespace
}  // namespace foretoken
