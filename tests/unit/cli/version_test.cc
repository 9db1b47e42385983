#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/cli/run_command.h"

namespace foretoken {
namespace {

TEST(VersionTest, ItNamesTheCommitAndWhatWasBuiltIn) {
  testing::TempDir dir;
  const testing::CommandResult ran = testing::RunCommand(dir, "--version");
  EXPECT_EQ(ran.exit_status, 0);
  EXPECT_THAT(ran.out,
              ::testing::MatchesRegex(
                  "foretoken [0-9.]+ \\(commit [0-9a-z.-]+; [A-Za-z, ]+, "
                  "(no )?GPU module\\)\n"));
}

}  // namespace
}  // namespace foretoken
