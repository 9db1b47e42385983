// What a mistyped command line is answered.
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/cli/run_command.h"

namespace foretoken {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(UsageTest, AnUnknownCommandIsNamed) {
  testing::TempDir dir;
  for (const char* const line : {"rnu model.gguf", "bench rnu model.gguf"}) {
    const testing::CommandResult ran = testing::RunCommand(dir, line);
    EXPECT_EQ(ran.exit_status, 2) << line;
    EXPECT_THAT(ran.err, StartsWith("foretoken: no such command: rnu\n"));
    EXPECT_THAT(ran.err, HasSubstr("--help"));
  }
}

TEST(UsageTest, UnknownOptionsAreNamedAsTheyWereTyped) {
  testing::TempDir dir;
  const testing::CommandResult ran =
      testing::RunCommand(dir, "run model.gguf --temprature 1");
  EXPECT_EQ(ran.exit_status, 2);
  EXPECT_THAT(ran.err, StartsWith("foretoken: unknown: --temprature 1\n"));
}

TEST(UsageTest, WithoutACommandThoseOfTheGroupAreListed) {
  testing::TempDir dir;
  for (const auto& [line, listed] :
       {std::pair("", "quantize"), std::pair("bench", "modes")}) {
    const testing::CommandResult ran = testing::RunCommand(dir, line);
    EXPECT_EQ(ran.exit_status, 2) << line;
    EXPECT_THAT(ran.err, StartsWith("foretoken: want a command\n"));
    EXPECT_THAT(ran.err, HasSubstr(listed));
  }
}

TEST(UsageTest, AMissingOptionIsNamed) {
  testing::TempDir dir;
  const testing::CommandResult ran = testing::RunCommand(dir, "run");
  EXPECT_EQ(ran.exit_status, 2);
  EXPECT_THAT(ran.err, StartsWith("foretoken: MODEL is required\n"));
}

TEST(UsageTest, HelpIsNoMistake) {
  testing::TempDir dir;
  const testing::CommandResult ran = testing::RunCommand(dir, "run --help");
  EXPECT_EQ(ran.exit_status, 0);
  EXPECT_THAT(ran.out, HasSubstr("MODEL"));
}

}  // namespace
}  // namespace foretoken
