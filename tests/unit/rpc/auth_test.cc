#include "common/rpc/auth.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken::rpc {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(BearerTokensTest, AcceptsEveryTokenOfTheFileAndNothingElse) {
  const testing::TempDir dir;
  const std::string path = dir.Write(
      "tokens", "# team a\nalpha-alpha-alpha\n\n  beta-beta-beta-beta \n");
  const auto tokens = BearerTokens::Load(path);
  FORETOKEN_ASSERT_OK(tokens);
  EXPECT_TRUE(tokens->Accepts("Bearer alpha-alpha-alpha"));
  EXPECT_TRUE(tokens->Accepts("Bearer beta-beta-beta-beta"));
  for (const char* bad : {"", "Bearer ", "alpha-alpha-alpha",
                          "bearer alpha-alpha-alpha", "Bearer alpha-alpha-alph",
                          "Bearer alpha-alpha-alphaa", "Bearer # team a"}) {
    EXPECT_FALSE(tokens->Accepts(bad)) << bad;
  }
}

TEST(BearerTokensTest, RefusesAWeakFileByLineWithoutShowingTheToken) {
  const testing::TempDir dir;
  EXPECT_THAT(BearerTokens::Load(dir.Write("short", "# x\nhunter2\n")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("short:2"), Not(HasSubstr("hunter2")))));
  EXPECT_THAT(BearerTokens::Load(dir.Write("empty", "# only a comment\n")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("holds 0 tokens")));
  EXPECT_THAT(BearerTokens::Load(dir.File("none")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
}

TEST(BearerTokensTest, AClientSendsTheFirstTokenOfItsFile) {
  const testing::TempDir dir;
  const auto token = LoadClientToken(
      dir.Write("t", "# mine\nalpha-alpha-alpha\nbeta-beta-beta-beta\n"));
  FORETOKEN_ASSERT_OK(token);
  EXPECT_EQ(*token, "alpha-alpha-alpha");
}

}  // namespace
}  // namespace foretoken::rpc
