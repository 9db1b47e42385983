#include "common/gguf/gguf_files.h"

#include <filesystem>
#include <string>

#include "absl/strings/str_format.h"
#include "common/gguf/gguf_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::testing::_;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

std::string Name(uint32_t number, uint32_t count) {
  return absl::StrFormat("m-%05d-of-%05d.gguf", number + 1, count);
}

// A split with the tensor "t<tensor>" alone.
std::string Split(uint32_t number, uint32_t count, int tensor) {
  GgufWriter writer;
  writer.Uint32("split.no", number);
  writer.Uint32("split.count", count);
  writer.Tensor(absl::StrFormat("t%d", tensor), 0, {{1}});
  return writer.Header() + std::string(4, '\0');
}

TEST(GgufFilesTest, SplitsAreJoined) {
  TempDir dir;
  for (uint32_t i = 0; i < 3; ++i) {
    dir.Write(Name(i, 3), Split(i, 3, static_cast<int>(i)));
  }
  const auto files = GgufFiles::Open(dir.File(Name(0, 3)));
  FORETOKEN_ASSERT_OK(files);
  EXPECT_EQ(files->maps.size(), 3u);
  ASSERT_EQ(files->tensors.size(), 3u);
  EXPECT_EQ(files->tensors.at("t2").file, dir.File(Name(2, 3)));
}

TEST(GgufFilesTest, SplitsThatDoNotFitAreRefused) {
  TempDir dir;
  const std::string first = dir.Write(Name(0, 2), Split(0, 2, 0));
  EXPECT_THAT(GgufFiles::Open(first), StatusIs(absl::StatusCode::kNotFound, _));
  const std::string second = dir.Write(Name(1, 2), Split(1, 2, 1));
  FORETOKEN_EXPECT_OK(GgufFiles::Open(first));
  EXPECT_THAT(GgufFiles::Open(second),
              StatusIs(kInvalid, HasSubstr("is split 2 of 2, want the first")));
  // A split that is the first again: no cycle can be followed.
  dir.Write(Name(1, 2), Split(0, 2, 1));
  EXPECT_THAT(GgufFiles::Open(first),
              StatusIs(kInvalid, second + ": split.no is 0 and split.count 2, "
                                          "want 1 and 2"));
  dir.Write(Name(1, 2), Split(1, 2, 0));
  EXPECT_THAT(GgufFiles::Open(first),
              StatusIs(kInvalid, HasSubstr("tensor t0 is also in " + first)));
  EXPECT_THAT(GgufFiles::Open(dir.Write("renamed.gguf", Split(0, 2, 0))),
              StatusIs(kInvalid, HasSubstr("-00001-of-00002.gguf")));
  EXPECT_THAT(GgufFiles::Open(dir.Write("many.gguf", Split(0, 5000, 0))),
              StatusIs(kInvalid, HasSubstr("split.count is 5000")));
}

TEST(GgufFilesTest, OnlyRegularFilesWithTheMagicAreGguf) {
  TempDir dir;
  EXPECT_TRUE(IsGgufFile(dir.Write("a", Split(0, 1, 0))));
  EXPECT_FALSE(IsGgufFile(dir.Write("b", "GGU")));
  EXPECT_FALSE(IsGgufFile(dir.Write("c", "{}")));
  EXPECT_FALSE(IsGgufFile(dir.path()));
  EXPECT_FALSE(IsGgufFile(dir.File("missing")));
}

}  // namespace
}  // namespace foretoken
