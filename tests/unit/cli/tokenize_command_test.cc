#include <string>

#include "gmock/gmock.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_tokenizer.h"
#include "tests/unit/cli/run_command.h"

namespace foretoken {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TokenizeCommandTest : public ::testing::Test {
 protected:
  TokenizeCommandTest()
      : file_(dir_.Write("tokenizer.json", testing::TinyTokenizerJson())) {}

  testing::CommandResult Run(const std::string& command,
                             const std::string& input,
                             const std::string& out = "") {
    return testing::RunCommand(dir_, command + " --tokenizer '" + file_ + "'",
                               input, out);
  }

  testing::TempDir dir_;
  const std::string file_;
};

TEST_F(TokenizeCommandTest, ALineInIsALineOutWithoutBos) {
  const auto ran = Run("tokenize", "{\"text\":\"xy\"}\n{\"text\":\"\"}\n");
  EXPECT_EQ(ran.exit_status, 0) << ran.err;
  EXPECT_EQ(ran.out, "{\"ids\":[25,26]}\n{\"ids\":[]}\n");
}

TEST_F(TokenizeCommandTest, DetokenizeIsTheWayBack) {
  const auto ids = Run("tokenize", "{\"text\":\"the an\"}\n");
  const auto ran = Run("detokenize", ids.out);
  EXPECT_EQ(ran.exit_status, 0) << ran.err;
  EXPECT_EQ(ran.out, "{\"text\":\"the an\"}\n");
}

TEST_F(TokenizeCommandTest, ABadLineEndsTheCommandByItsNumber) {
  const auto ran = Run("tokenize", "{\"text\":\"x\"}\n{\"txt\":1}\n");
  EXPECT_EQ(ran.exit_status, 1);
  EXPECT_EQ(ran.out, "{\"ids\":[25]}\n");
  EXPECT_THAT(ran.err, HasSubstr("INVALID_ARGUMENT: stdin line 2"));
  EXPECT_THAT(Run("detokenize", "{\"ids\":[1,50]}\n").err,
              HasSubstr("ids[1]: 50, want 0..49"));
  EXPECT_THAT(Run("tokenize", "{\n").err, HasSubstr("stdin line 1"));
}

TEST_F(TokenizeCommandTest, AMissingTokenizerAndAFullDiskAreErrors) {
  const auto missing = testing::RunCommand(
      dir_, "tokenize --tokenizer '" + dir_.File("none") + "'");
  EXPECT_EQ(missing.exit_status, 1);
  EXPECT_THAT(missing.out, IsEmpty());
  EXPECT_THAT(missing.err, HasSubstr(dir_.File("none")));
  const auto full = Run("tokenize", "{\"text\":\"x\"}\n", "/dev/full");
  EXPECT_EQ(full.exit_status, 1);
  EXPECT_THAT(full.err, HasSubstr("DATA_LOSS: stdout"));
}

}  // namespace
}  // namespace foretoken
