#include "services/gateway/core/prefix_sharing.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/services/gateway/service_fixture.h"

namespace foretoken::gateway {
namespace {

using ::testing::SizeIs;

HttpRequest From(const std::string& peer, HttpHeaders headers = {}) {
  HttpRequest request;
  request.peer = peer;
  request.headers = std::move(headers);
  return request;
}

HttpRequest Local(HttpHeaders headers = {}) {
  headers.emplace_back("Host", "localhost:8080");
  return From("127.0.0.1", std::move(headers));
}

const Caller kGuest = {.name = "127.0.0.1"};
const Caller kAlice = {.name = "alice", .authenticated = true};

TEST(PrefixSharingTest, CallersWithKeysShareUnlessItIsOff) {
  const PrefixSharing sharing(/*enabled=*/true, /*single_user=*/false);
  const std::string own = sharing.ScopeOf(From("192.0.2.1"), kAlice);
  EXPECT_NE(own, "");
  // Every gateway gives the same name.
  EXPECT_EQ(PrefixSharing(true, true)
                .ScopeOf(Local({{"X-Forwarded-For", "192.0.2.9"}}), kAlice),
            own);
  EXPECT_EQ(PrefixSharing(false, true).ScopeOf(Local(), kAlice), "");
}

// Also for an orchestrator that takes both for the gateway.
TEST(PrefixSharingTest, ScopesOfTwoCallersDiffer) {
  const PrefixSharing sharing(/*enabled=*/true, /*single_user=*/false);
  const std::string alice = sharing.ScopeOf(Local(), kAlice);
  for (const char* name : {"bob", "", "alice2", "Alice"}) {
    const Caller other = {.name = name, .authenticated = true};
    EXPECT_NE(sharing.ScopeOf(Local(), other), alice) << name;
  }
  // The longest name of a key file leaves a scope that is served.
  const Caller longest = {.name = std::string(64, 'a'), .authenticated = true};
  const std::string scope = sharing.ScopeOf(Local(), longest);
  EXPECT_NE(scope, alice);
  EXPECT_LE(scope.size(), kMaxCacheScopeBytes);
}

TEST(PrefixSharingTest, WithoutKeysASingleUserShares) {
  EXPECT_EQ(PrefixSharing(true, false).ScopeOf(Local(), kGuest), "");
  EXPECT_EQ(PrefixSharing(false, true).ScopeOf(Local(), kGuest), "");
  const PrefixSharing sharing(true, true);
  const std::string scope = sharing.ScopeOf(Local(), kGuest);
  EXPECT_THAT(scope, SizeIs(64));
  EXPECT_EQ(sharing.ScopeOf(From("::/64", {{"Host", "[::1]:8080"}}),
                            {.name = "::/64"}),
            scope);
  EXPECT_EQ(
      sharing.ScopeOf(Local({{"Origin", "http://localhost:8080"}}), kGuest),
      scope);
  EXPECT_EQ(sharing.ScopeOf(Local({{"Forward-Thinking", "1"}}), kGuest), scope);
  // It is drawn, so that it cannot be guessed.
  EXPECT_NE(PrefixSharing(true, true).ScopeOf(Local(), kGuest), scope);
  EXPECT_NE(sharing.ScopeOf(Local(), kAlice), scope);
}

TEST(PrefixSharingTest, ASingleUsersRequestsComeFromThisMachine) {
  const PrefixSharing sharing(true, true);
  for (const char* peer :
       {"192.0.2.1", "2001:db8::/64", "unix", "", "10.0.0.1", "1127.0.0.1"}) {
    EXPECT_EQ(sharing.ScopeOf(From(peer, {{"Host", "localhost"}}), kGuest), "")
        << peer;
  }
  for (const char* host : {"chat.example.com", "localhost.example.com"}) {
    EXPECT_EQ(sharing.ScopeOf(From("127.0.0.1", {{"Host", host}}), kGuest), "")
        << host;
  }
  for (const char* origin : {"null", "http://localhost:3000",
                             "https://example.com", "localhost:8080"}) {
    EXPECT_EQ(sharing.ScopeOf(Local({{"Origin", origin}}), kGuest), "")
        << origin;
  }
}

TEST(PrefixSharingTest, ForwardedRequestsShareNothing) {
  const PrefixSharing sharing(true, true);
  for (const char* header : {"Forwarded",         "X-Forwarded-For",
                             "x-forwarded-proto", "X-Forwarded-Host",
                             "X-Forwarded",       "Forwarded-For",
                             "X-Real-IP",         "VIA",
                             "X-Client-IP",       "X-Cluster-Client-IP",
                             "X-Original-For",    "X-Original-Forwarded-For",
                             "Client-IP",         "True-Client-IP",
                             "CF-Connecting-IP",  "Fastly-Client-IP",
                             "Fly-Client-IP",     "X-Envoy-External-Address",
                             "X-ProxyUser-IP",    "WL-Proxy-Client-IP"}) {
    // An empty one says so, too.
    for (const char* value : {"192.0.2.1", ""}) {
      const HttpRequest request = Local({{"Accept", "*/*"}, {header, value}});
      EXPECT_TRUE(IsForwarded(request)) << header;
      EXPECT_EQ(sharing.ScopeOf(request, kGuest), "") << header;
    }
  }
  EXPECT_FALSE(IsForwarded(Local({{"User-Agent", "via forwarded"}})));
}

class PrefixScopeTest : public GatewayServiceTest {
 protected:
  // The scopes with which the generator was asked: {cache, prefix}.
  std::pair<std::string, std::string> ScopesOf(const std::string& fields,
                                               HttpHeaders headers = {}) {
    headers.emplace_back("Authorization", "Bearer right");
    HttpRequest request;
    request.method = "POST";
    request.path = "/v1/completions";
    request.peer = "127.0.0.1";
    request.headers = std::move(headers);
    request.headers.emplace_back("Content-Type", "application/json");
    request.body = absl::StrCat(R"({"prompt": "ab")", fields, "}");
    const size_t before = generator_.calls.size();
    const auto exchange = Send(std::move(request));
    EXPECT_EQ(generator_.calls.size(), before + 1) << exchange->response.body;
    generator_.calls.back()->Finish(1);
    ignored_ = exchange->Header("X-Foretoken-Ignored-Fields");
    const GenerationRequest& sent = generator_.calls.back()->request;
    return {sent.cache_scope, sent.prefix_scope};
  }
  using Scopes = std::pair<std::string, std::string>;

  std::string ignored_;  // fields of the latest request
};

TEST_F(PrefixScopeTest, ARequestThatNamesNoneSharesItsCallersPages) {
  Make({}, /*with_keys=*/true);
  const std::string own = ScopesOf("").second;
  EXPECT_NE(own, "");
  EXPECT_EQ(ScopesOf(""), Scopes("", own));
  // The fields that name a user do not change that.
  EXPECT_EQ(ScopesOf(R"(, "user": "bob")"), Scopes("", own));
  EXPECT_EQ(ScopesOf(R"(, "safety_identifier": "bob")"), Scopes("", own));
  EXPECT_EQ(ScopesOf(R"(, "cache_scope": null)"), Scopes("", own));
}

TEST_F(PrefixScopeTest, ANamedScopeIsAllThatIsShared) {
  Make({}, /*with_keys=*/true);
  EXPECT_EQ(ScopesOf(R"(, "cache_scope": "a")"), Scopes("a", ""));
  EXPECT_EQ(ScopesOf(R"(, "prompt_cache_key": "a")"), Scopes("a", ""));
  EXPECT_EQ(ScopesOf(R"(, "prompt_cache_key": "a", "cache_scope": "a")"),
            Scopes("a", ""));
  EXPECT_EQ(ScopesOf(R"(, "cache_salt": "a")"), Scopes("a", ""));
  EXPECT_EQ(ignored_, "");
  // The name "" is that of no scope.
  EXPECT_EQ(ScopesOf(R"(, "cache_scope": "")"), Scopes("", ""));
}

TEST_F(PrefixScopeTest, WithoutKeysNothingIsSharedButByASingleUser) {
  Make();
  EXPECT_EQ(ScopesOf(""), Scopes("", ""));
  GatewayOptions options;
  options.single_user = true;
  Make(options);
  EXPECT_NE(ScopesOf("").second, "");
  EXPECT_EQ(ScopesOf("", {{"Via", "1.1 proxy"}}), Scopes("", ""));
  options.prefix_sharing = false;
  Make(options);
  EXPECT_EQ(ScopesOf(""), Scopes("", ""));
}

// Two users' clients may send the same key, neither of them knowing of it.
TEST_F(PrefixScopeTest, WithoutKeysOtherServersNamesOfAScopeAreIgnored) {
  Make();
  EXPECT_EQ(ScopesOf(R"(, "prompt_cache_key": "a")"), Scopes("", ""));
  EXPECT_EQ(ignored_, "prompt_cache_key");
  EXPECT_EQ(ScopesOf(R"(, "cache_salt": "a", "user": "u")"), Scopes("", ""));
  EXPECT_EQ(ignored_, "user, cache_salt");
  EXPECT_EQ(ScopesOf(R"(, "cache_salt": "a", "prompt_cache_key": "a")"),
            Scopes("", ""));
  EXPECT_EQ(ignored_, "prompt_cache_key, cache_salt");
  // It turns sharing off, which is always heeded.
  EXPECT_EQ(ScopesOf(R"(, "prompt_cache_key": "")"), Scopes("", ""));
  EXPECT_EQ(ignored_, "");
  // A scope that is asked for by its name.
  EXPECT_EQ(ScopesOf(R"(, "cache_scope": "a")"), Scopes("a", ""));
  EXPECT_EQ(ScopesOf(R"(, "cache_scope": "a", "prompt_cache_key": "a")"),
            Scopes("a", ""));
  EXPECT_EQ(ignored_, "");
}

TEST_F(PrefixScopeTest, ASingleUsersNamesAreTheUsersOwn) {
  GatewayOptions options;
  options.single_user = true;
  Make(options);
  const std::string longest(kMaxCacheScopeBytes, 'a');
  const auto key = [&](const std::string& name, const HttpHeaders& headers) {
    const Scopes scopes = ScopesOf(
        absl::StrCat(R"(, "prompt_cache_key": ")", name, "\""), headers);
    EXPECT_EQ(scopes.second, "");
    return scopes.first;
  };
  const std::string a = key("a", {});
  EXPECT_EQ(ignored_, "");
  EXPECT_EQ(key("a", {}), a);
  EXPECT_EQ(ScopesOf(R"(, "cache_salt": "a")"), Scopes(a, ""));
  const std::set<std::string> scopes = {"a", ScopesOf("").second, a,
                                        key("b", {}), key(longest, {})};
  EXPECT_EQ(scopes.size(), 5u);
  for (const std::string& scope : scopes) {
    EXPECT_LE(scope.size(), kMaxCacheScopeBytes);
    EXPECT_NE(scope, "");
  }
  EXPECT_EQ(key("a", {{"X-Forwarded-For", "192.0.2.1"}}), "");
  EXPECT_EQ(ignored_, "prompt_cache_key");
  EXPECT_EQ(ScopesOf(R"(, "cache_scope": "a")"), Scopes("a", ""));
  // Another start draws another secret.
  Make(options);
  EXPECT_NE(key("a", {}), a);
  options.prefix_sharing = false;
  Make(options);
  EXPECT_EQ(key("a", {}), "");
  EXPECT_EQ(ignored_, "prompt_cache_key");
}

}  // namespace
}  // namespace foretoken::gateway
