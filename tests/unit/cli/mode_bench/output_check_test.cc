#include "tools/cli/mode_bench/output_check.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken::mode_bench {
namespace {

using ::testing::HasSubstr;

std::vector<TokenId> Ids(std::vector<TokenId> ids) { return ids; }

TEST(OutputCheckTest, EqualOutputsPass) {
  OutputCheck check;
  EXPECT_THAT(check.Add("off", 0, Ids({1, 2, 3}), 3), testing::IsOk());
  EXPECT_THAT(check.Add("off", 1, Ids({9}), 3), testing::IsOk());
  EXPECT_EQ(check.compared(), 0);
  EXPECT_THAT(check.Add("auto", 0, Ids({1, 2, 3}), 3), testing::IsOk());
  EXPECT_EQ(check.compared(), 3);
}

TEST(OutputCheckTest, TheFirstDifferenceIsNamed) {
  OutputCheck check;
  ASSERT_THAT(check.Add("off", 4, Ids({1, 2, 3}), 8), testing::IsOk());
  const absl::Status other = check.Add("auto", 4, Ids({1, 7, 3}), 8);
  EXPECT_TRUE(absl::IsDataLoss(other));
  EXPECT_THAT(std::string(other.message()),
              HasSubstr("prompt 5 at position 1: token 7 in mode auto, token "
                        "2 in mode off"));
  const absl::Status longer = check.Add("auto", 4, Ids({1, 2, 3, 4}), 8);
  EXPECT_THAT(std::string(longer.message()),
              HasSubstr("position 3: token 4 in mode auto, the end in mode"));
  const absl::Status shorter = check.Add("auto", 4, Ids({1, 2}), 8);
  EXPECT_THAT(std::string(shorter.message()),
              HasSubstr("position 2: the end in mode auto, token 3 in mode"));
}

TEST(OutputCheckTest, ALowerLimitCutsTheOutput) {
  OutputCheck check;
  ASSERT_THAT(check.Add("off", 0, Ids({1, 2}), 2), testing::IsOk());
  // The longer output becomes the reference.
  EXPECT_THAT(check.Add("auto", 0, Ids({1, 2, 3, 4}), 4), testing::IsOk());
  EXPECT_THAT(check.Add("off", 0, Ids({1, 2, 3}), 3), testing::IsOk());
  EXPECT_FALSE(check.Add("off", 0, Ids({1, 2, 5}), 3).ok());
  // One that ended before its limit must end at any higher limit.
  EXPECT_FALSE(check.Add("off", 0, Ids({1, 2}), 3).ok());
}

}  // namespace
}  // namespace foretoken::mode_bench
