#include "services/orchestrator/core/admission/cache_scopes.h"

#include <set>

#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken::orchestrator {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;

Caller Named(const std::string& name) {
  return {.name = name, .authenticated = true};
}

TEST(CacheScopesTest, AScopeBelongsToItsCaller) {
  const auto scopes = CacheScopes::Load("");
  FORETOKEN_ASSERT_OK(scopes);
  const std::string ours = scopes->Effective(Named("a"), "chat");
  EXPECT_EQ(scopes->Effective(Named("a"), "chat"), ours);
  const std::set<std::string> others = {
      ours,
      scopes->Effective(Named("b"), "chat"),
      scopes->Effective(Named("a"), "chat2"),
      scopes->Effective(Named("ac"), "hat"),
      scopes->Effective(Named("b"), ours),
      scopes->Effective({.name = "a"}, "chat")};
  EXPECT_EQ(others.size(), 6u);
  EXPECT_THAT(ours, Not(HasSubstr("chat")));
  EXPECT_LE(ours.size(), kMaxCacheScopeBytes);
}

TEST(CacheScopesTest, NoScopeStaysNoneAndWithoutAuthenticationANameStays) {
  const auto scopes = CacheScopes::Load("");
  FORETOKEN_ASSERT_OK(scopes);
  EXPECT_EQ(scopes->Effective(Named("a"), ""), "");
  EXPECT_EQ(scopes->Effective({.name = "127.0.0.1"}, "chat"), "chat");
}

TEST(CacheScopesTest, ProcessesShareScopesByTheirKeyFileAlone) {
  const testing::TempDir dir;
  const std::string key(32, 'k');
  const auto first = CacheScopes::Load(dir.Write("key", key));
  const auto second = CacheScopes::Load(dir.Write("same", key + "\n"));
  const auto other = CacheScopes::Load(dir.Write("other", key + "2"));
  const auto random = CacheScopes::Load("");
  FORETOKEN_ASSERT_OK(first);
  const std::string scope = first->Effective(Named("a"), "chat");
  EXPECT_EQ(second->Effective(Named("a"), "chat"), scope);
  EXPECT_NE(other->Effective(Named("a"), "chat"), scope);
  EXPECT_NE(random->Effective(Named("a"), "chat"), scope);
  EXPECT_NE(CacheScopes::Load("")->Effective(Named("a"), "chat"),
            random->Effective(Named("a"), "chat"));
}

TEST(CacheScopesTest, ABadKeyFileIsRefusedWithoutShowingTheKey) {
  const testing::TempDir dir;
  EXPECT_THAT(CacheScopes::Load(dir.Write("short", "hunter2")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       ::testing::AllOf(HasSubstr("short: a key of 7 bytes"),
                                        Not(HasSubstr("hunter2")))));
  EXPECT_THAT(CacheScopes::Load(dir.File("none")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
}

}  // namespace
}  // namespace foretoken::orchestrator
