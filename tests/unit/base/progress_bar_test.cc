#include "common/base/progress_bar.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

using ::testing::HasSubstr;

TEST(ProgressTest, ShowsShareRateAndTimeLeft) {
  const std::string line = Progress::Line("count", 25'000'000, 100'000'000,
                                          "tokens", absl::Seconds(10));
  EXPECT_THAT(line, HasSubstr("[#####---------------]  25 %"));
  EXPECT_THAT(line, HasSubstr("2.50 M"));
  EXPECT_THAT(line, HasSubstr("tokens/s"));
  EXPECT_THAT(line, HasSubstr("0:30 left"));
}

TEST(ProgressTest, TellsTheTimeTakenAtTheEnd) {
  EXPECT_THAT(Progress::Line("x", 7, 7, "rows", absl::Seconds(3725)),
              HasSubstr("1:02:05 in all"));
}

TEST(ProgressTest, KnowsNoTimeLeftBeforeTheFirstStep) {
  EXPECT_THAT(Progress::Line("x", 0, 7, "rows", absl::Seconds(1)),
              HasSubstr("-:-- left"));
}

TEST(ProgressTest, CountsWithoutATotal) {
  EXPECT_THAT(Progress::Line("x", 1500, 0, "rows", absl::Seconds(3)),
              HasSubstr("1.5 krows  500 rows/s  0:03"));
}

}  // namespace
}  // namespace foretoken
