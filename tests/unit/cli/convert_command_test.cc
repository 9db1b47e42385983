#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/cli/run_command.h"

namespace foretoken {
namespace {

using ::testing::HasSubstr;

TEST(ConvertCommandTest, BadInputIsNamedAndNothingIsWritten) {
  testing::TempDir dir;
  const std::string out = dir.File("made");
  const auto run = [&](const std::string& checkpoint) {
    return testing::RunCommand(
        dir, "convert llama2c --checkpoint '" + checkpoint + "' --tokenizer '" +
                 dir.Write("t.bin", "no") + "' --out '" + out + "'");
  };
  const auto cut = run(dir.Write("cut.bin", "short"));
  EXPECT_EQ(cut.exit_status, 1);
  EXPECT_THAT(cut.err, HasSubstr("INVALID_ARGUMENT"));
  EXPECT_THAT(cut.err, HasSubstr("cut.bin"));
  const auto missing = run(dir.File("none.bin"));
  EXPECT_EQ(missing.exit_status, 1);
  EXPECT_THAT(missing.err, HasSubstr("none.bin"));
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(ConvertCommandTest, EveryOptionIsRequired) {
  testing::TempDir dir;
  const auto ran = testing::RunCommand(dir, "convert llama2c --out x");
  EXPECT_NE(ran.exit_status, 0);
  EXPECT_THAT(ran.err, HasSubstr("is required"));
}

}  // namespace
}  // namespace foretoken
