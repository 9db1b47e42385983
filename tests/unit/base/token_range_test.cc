#include "common/base/token_range.h"

#include <cstdint>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

TEST(TokenRangeTest, AVocabularyBeginsWithZeroAndEndsBeforeItsSize) {
  EXPECT_TRUE(InVocabulary(0, 50));
  EXPECT_TRUE(InVocabulary(49, 50));
  EXPECT_FALSE(InVocabulary(-1, 50));
  EXPECT_FALSE(InVocabulary(50, 50));
  EXPECT_FALSE(InVocabulary(0, 0));
  EXPECT_FALSE(InVocabulary(std::numeric_limits<TokenId>::min(), 50));
  EXPECT_FALSE(InVocabulary(std::numeric_limits<TokenId>::max(), 50));
}

TEST(TokenRangeTest, AllMeansEveryOne) {
  EXPECT_TRUE(AllInVocabulary({}, 50));
  EXPECT_TRUE(AllInVocabulary({0, 49}, 50));
  EXPECT_FALSE(AllInVocabulary({50, 0}, 50));
  EXPECT_FALSE(AllInVocabulary({0, 50}, 50));
  EXPECT_FALSE(AllInVocabulary({0, -1, 1}, 50));
}

TEST(TokenRangeTest, NamesTheFieldAndTheFirstTokenOutside) {
  FORETOKEN_EXPECT_OK(CheckTokenIds("prompt", {}, 50));
  FORETOKEN_EXPECT_OK(CheckTokenIds("prompt", {0, 49}, 50));
  EXPECT_THAT(
      CheckTokenIds("prompt", {0, 7, 50, -3}, 50),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("prompt: token 2 is 50, the vocabulary is 0..49")));
  EXPECT_THAT(CheckTokenIds("stop", {-1}, 50),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("stop: token 0 is -1")));
}

}  // namespace
}  // namespace foretoken
