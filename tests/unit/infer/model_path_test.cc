#include "common/infer/model_path.h"

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/gguf/gguf_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_data.h"

namespace foretoken {
namespace {

using ::foretoken::testing::SourcePath;
using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;

constexpr absl::StatusCode kNotFound = absl::StatusCode::kNotFound;

// A GGUF file without tensors, of an architecture that is not served.
std::string WriteGguf(const TempDir& dir, const std::string& file,
                      const std::string& name) {
  GgufWriter writer;
  writer.String("general.architecture", "gemma");
  if (!name.empty()) writer.String("general.name", name);
  return dir.Write(file, writer.Header());
}

TEST(CheckModelPathTest, WhatIsNoModelIsToldFromWhatIsMissing) {
  const TempDir dir;
  const std::string missing = dir.File("none.gguf");
  EXPECT_THAT(CheckModelPath(missing),
              StatusIs(kNotFound, missing + ": no such file or directory"));
  const std::string text = dir.Write("notes.txt", "root:x:0:0");
  EXPECT_THAT(CheckModelPath(text),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       text + ": not a GGUF file or model directory"));
  EXPECT_THAT(
      CheckModelPath(dir.path()),
      StatusIs(kNotFound, dir.path() + ": not a model directory: it has "
                                       "no config.json"));
  FORETOKEN_EXPECT_OK(CheckModelPath(WriteGguf(dir, "a.gguf", "")));
  FORETOKEN_EXPECT_OK(CheckModelPath(SourcePath("tools/demo/target")));
}

TEST(CheckModelTest, AnUnsupportedModelIsNamedBeforeItsTokenizer) {
  const TempDir dir;
  const std::string file = WriteGguf(dir, "a.gguf", "");
  EXPECT_THAT(
      CheckModel(file),
      StatusIs(absl::StatusCode::kUnimplemented,
               ::testing::StartsWith(absl::StrCat(
                   "model not supported: ", file,
                   ": general.architecture is \"gemma\", want llama"))));
  FORETOKEN_EXPECT_OK(CheckModel(SourcePath("tools/demo/target")));
}

TEST(ModelNameTest, AGgufFileNamesItself) {
  const TempDir dir;
  EXPECT_EQ(ModelNameOf(WriteGguf(dir, "a.gguf", "Gemma 2b It")),
            "Gemma 2b It");
  EXPECT_EQ(ModelNameOf(WriteGguf(dir, "a.gguf", " spaced \n")), "spaced");
}

TEST(ModelNameTest, OthersAreCalledAsTheirFileOrDirectory) {
  const TempDir dir;
  EXPECT_EQ(ModelNameOf(WriteGguf(dir, "gemma-2b.Q4_K_M.gguf", "")),
            "gemma-2b.Q4_K_M");
  EXPECT_EQ(ModelNameOf(WriteGguf(dir, "big-00001-of-00003.gguf", "")), "big");
  // Names that would break a line or a page.
  EXPECT_EQ(ModelNameOf(WriteGguf(dir, "b.gguf", "two\nlines")), "b");
  EXPECT_EQ(ModelNameOf(WriteGguf(dir, "b.gguf", std::string(129, 'n'))), "b");
  // A protocol buffer cannot carry this one, and these show a path.
  EXPECT_EQ(ModelNameOf(WriteGguf(dir, "b.gguf", "caf\xe9")), "b");
  for (const char* path : {"/srv/models/x", "models/x", "a\\b", ".", ".."}) {
    EXPECT_EQ(ModelNameOf(WriteGguf(dir, "b.gguf", path)), "b") << path;
  }
  EXPECT_EQ(ModelNameOf(WriteGguf(dir, "b.gguf", "\u6a21\u578b")),
            "\u6a21\u578b");
  // A cache of links to files that are called by their hash.
  WriteGguf(dir, "0123abcd", "");
  std::filesystem::create_symlink("0123abcd", dir.path() + "/linked.gguf");
  EXPECT_EQ(ModelNameOf(dir.path() + "/linked.gguf"), "linked");
  const std::string target = SourcePath("tools/demo/target");
  EXPECT_EQ(ModelNameOf(target), "target");
  EXPECT_EQ(ModelNameOf(target + "/"), "target");
  EXPECT_EQ(ModelNameOf(target + "/../draft/."), "draft");
  EXPECT_EQ(ModelNameOf("/"), "model");
}

}  // namespace
}  // namespace foretoken
