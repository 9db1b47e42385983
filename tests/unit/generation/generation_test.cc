#include "common/generation/generation.h"

#include <string>

#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(GenerationNamesTest, RequestIdsAreNamesThatLogsCanShow) {
  for (const char* good : {"", "a", "req-1.2_3", "ABCxyz019"}) {
    FORETOKEN_EXPECT_OK(CheckRequestId(good));
  }
  FORETOKEN_EXPECT_OK(CheckRequestId(std::string(kMaxRequestIdBytes, 'x')));
  for (const std::string& bad :
       {std::string("a b"), std::string("a\nb"), std::string("\xc3\xa9"),
        std::string("a\0b", 3), std::string(kMaxRequestIdBytes + 1, 'x')}) {
    EXPECT_THAT(CheckRequestId(bad),
                StatusIs(kInvalid, HasSubstr("request_id")));
  }
}

TEST(GenerationNamesTest, CacheScopesAreBounded) {
  FORETOKEN_EXPECT_OK(CheckCacheScope(std::string(kMaxCacheScopeBytes, 's')));
  EXPECT_THAT(CheckCacheScope(std::string(kMaxCacheScopeBytes + 1, 's')),
              StatusIs(kInvalid, HasSubstr("cache_scope: 257 bytes")));
  EXPECT_THAT(CheckCacheScope(std::string(257, 's'), "prefix_scope"),
              StatusIs(kInvalid, HasSubstr("prefix_scope: 257 bytes")));
}

}  // namespace
}  // namespace foretoken
