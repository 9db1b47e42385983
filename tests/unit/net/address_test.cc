#include "common/net/address.h"

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken::net {
namespace {

TEST(AddressTest, AcceptsHostPortAndUnixPaths) {
  for (const char* good : {"127.0.0.1:0", "localhost:65535", "[::1]:50051",
                           "verifier.ns.svc:50051", "unix:/tmp/x.sock"}) {
    FORETOKEN_EXPECT_OK(ValidateAddress(good)) << good;
  }
}

TEST(AddressTest, RefusesTheRestByName) {
  for (const std::string& bad : std::vector<std::string>{
           "localhost", ":50051", "a:-1", "a:65536", "a:b", "",
           "unix:", "unix:/" + std::string(200, 'x')}) {
    EXPECT_THAT(ValidateAddress(bad),
                testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                  ::testing::HasSubstr(bad)))
        << bad;
  }
}

TEST(AddressTest, SplitsHostAndPort) {
  struct Case {
    const char *text, *host, *port;
  };
  for (const Case& each : {Case{"collector:99", "collector", "99"},
                           {"collector", "collector", ""},
                           {"collector:", "collector", ""},
                           {"[::1]:80", "::1", "80"},
                           {"[::1]", "::1", ""},
                           {":80", "", "80"},
                           {"[::1", "", ""},
                           {"[::1]x:80", "", ""},
                           {"", "", ""}}) {
    EXPECT_EQ(SplitHostPort(each.text).host, each.host) << each.text;
    EXPECT_EQ(SplitHostPort(each.text).port, each.port) << each.text;
  }
  EXPECT_EQ(JoinHostPort("::1", "80"), "[::1]:80");
  EXPECT_EQ(JoinHostPort("collector", "80"), "collector:80");
}

TEST(AddressTest, APortIsANumberOf16Bits) {
  EXPECT_EQ(ParsePort("0"), 0);
  EXPECT_EQ(ParsePort("65535"), 65535);
  for (const char* bad : {"", "-1", "65536", "http", "8 0"}) {
    EXPECT_EQ(ParsePort(bad), std::nullopt) << bad;
  }
}

TEST(AddressTest, OnlyThisMachineIsLocal) {
  for (const char* local :
       {"127.0.0.1:1", "127.8.9.1:1", "localhost:1", "[::1]:1", "unix:/x"}) {
    EXPECT_TRUE(IsLocalAddress(local)) << local;
  }
  for (const char* remote : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1",
                             "localhost.evil.org:1", "128.0.0.1:1"}) {
    EXPECT_FALSE(IsLocalAddress(remote)) << remote;
  }
}

}  // namespace
}  // namespace foretoken::net
