#include "common/base/json.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

TEST(ParseJsonTest, GivesTheOffsetOfAnError) {
  EXPECT_THAT(
      ParseJson("{\"a\": }"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("column")));
}

TEST(ParseJsonTest, DoesNotRepeatALongBrokenText) {
  const absl::Status status =
      ParseJson("\"" + std::string(1'000'000, 'a')).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("column")));
  EXPECT_LT(status.message().size(), 300u);
}

TEST(ParseJsonTest, RefusesDeepNestingWithoutFillingTheStack) {
  const std::string deep(1'000'000, '[');
  EXPECT_FALSE(ParseJson(deep).ok());
  EXPECT_THAT(
      ParseJson(std::string(70, '[') + std::string(70, ']')),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("deeper")));
  FORETOKEN_EXPECT_OK(ParseJson(std::string(60, '[') + std::string(60, ']')));
}

TEST(DumpJsonTest, ReplacesInvalidUtf8) {
  EXPECT_EQ(DumpJson(Json("a\xff")), "\"a\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace foretoken
