#include "common/rpc/bearer_token.h"

#include <string>

#include "common/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken::rpc {
namespace {

using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::testing::HasSubstr;

TEST(BearerTokenTest, NoFileIsNoToken) { EXPECT_EQ(BearerToken().Get(), ""); }

TEST(BearerTokenTest, IsReadAgainWhenItsFileChanges) {
  const TempDir dir;
  const std::string path = dir.Write("token", "first-first-first a\n");
  absl::Time now = absl::FromUnixSeconds(1000);
  const auto token = BearerToken::Load(path, [&] { return now; });
  FORETOKEN_ASSERT_OK(token);
  const BearerToken copy = *token;
  EXPECT_EQ(copy.Get(), "first-first-first");
  FORETOKEN_ASSERT_OK(WriteFileAtomically(path, "second-second-second\n"));
  EXPECT_EQ(copy.Get(), "first-first-first");
  now += kReloadInterval;
  EXPECT_EQ(copy.Get(), "second-second-second");
  EXPECT_EQ(token->Get(), "second-second-second");
  // A bad file, or none, leaves the old token.
  FORETOKEN_ASSERT_OK(WriteFileAtomically(path, "short\n"));
  now += kReloadInterval;
  EXPECT_EQ(copy.Get(), "second-second-second");
  FORETOKEN_ASSERT_OK(WriteFileAtomically(path, "third-third-third\n"));
  now += kReloadInterval;
  EXPECT_EQ(copy.Get(), "third-third-third");
}

TEST(BearerTokenTest, AFileWithoutATokenIsNamed) {
  const TempDir dir;
  EXPECT_THAT(BearerToken::Load(dir.File("none")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
  EXPECT_THAT(BearerToken::Load(dir.Write("bad", "short\n")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bad")));
}

}  // namespace
}  // namespace foretoken::rpc
