#include "tests/lab/rest/rest_mode.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

absl::StatusOr<RestOptions> Parse(const std::string& text) {
  const auto spec = ModeSpec::Parse(text);
  if (!spec.ok()) return spec.status();
  return ReadRestMode(*spec);
}

TEST(RestModeTest, IsAsPublishedUnlessTheTextSaysOtherwise) {
  const auto published = Parse("rest");
  FORETOKEN_ASSERT_OK(published);
  EXPECT_EQ(published->max_n, 16);
  EXPECT_EQ(published->min_n, 2);
  EXPECT_FALSE(published->exact);
  const auto exact = Parse("rest:min_n=1,exact=1");
  FORETOKEN_ASSERT_OK(exact);
  EXPECT_EQ(exact->max_n, 4);
  EXPECT_EQ(exact->min_n, 1);
  EXPECT_TRUE(exact->exact);
}

TEST(RestModeTest, TakesItsKeysAndNoOthers) {
  EXPECT_THAT(Parse("rest:exact=1,min_n=5"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("min_n")));
  EXPECT_THAT(Parse("rest:depth=3"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("depth")));
}

TEST(RestModeTest, HelpNamesTheDefaults) {
  EXPECT_EQ(RestModeHelp(), "rest:exact=0,max_n=16,min_n=2");
}

}  // namespace
}  // namespace foretoken
