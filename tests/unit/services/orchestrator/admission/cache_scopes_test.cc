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

// Also those of callers without a proven name, who could otherwise name the
// scope in which another's pages lie.
TEST(CacheScopesTest, ScopesOfPagesCannotBeNamed) {
  const auto scopes = CacheScopes::Load("");
  FORETOKEN_ASSERT_OK(scopes);
  const Caller guest = {.name = "127.0.0.1"};
  const std::string ours = scopes->EffectiveOfPages(Named("a"), "own");
  const std::string guests = scopes->EffectiveOfPages(guest, "own");
  EXPECT_EQ(scopes->EffectiveOfPages(Named("a"), "own"), ours);
  EXPECT_EQ(scopes->EffectiveOfPages({.name = "::/64"}, "own"), guests);
  EXPECT_EQ(scopes->EffectiveOfPages(Named("a"), ""), "");
  EXPECT_EQ(scopes->EffectiveOfPages(guest, ""), "");
  const std::set<std::string> others = {
      ours,
      guests,
      scopes->EffectiveOfPages(Named("b"), "own"),
      scopes->EffectiveOfPages(Named("a"), "own2"),
      scopes->EffectiveOfPages(Named("ao"), "wn"),
      scopes->EffectiveOfPages(Named("b"), ours),
      scopes->EffectiveOfPages(guest, ours),
      scopes->EffectiveOfPages(guest, "1:aown"),
      scopes->Effective(Named("a"), "own"),
      scopes->Effective(Named("b"), ours),
      scopes->Effective(guest, "own"),
      scopes->Effective(guest, "pages:-:own")};
  EXPECT_EQ(others.size(), 12u);
  EXPECT_EQ(ours.size(), 64u);
  EXPECT_LE(ours.size(), kMaxCacheScopeBytes);
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
  EXPECT_EQ(second->EffectiveOfPages(Named("a"), "own"),
            first->EffectiveOfPages(Named("a"), "own"));
  EXPECT_NE(other->EffectiveOfPages(Named("a"), "own"),
            first->EffectiveOfPages(Named("a"), "own"));
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
