#include "common/net/host_names.h"

#include <string>

#include "gtest/gtest.h"

namespace foretoken::net {
namespace {

TEST(HostNamesTest, AServerIsKnownByItsAddressesAndByAllowedNames) {
  for (const char* own :
       {"", "localhost", "LocalHost:80", "localhost.", "127.0.0.1:9100",
        "[::1]", "[::1]:80", "[2001:db8::1]:80", "Metrics.example:80"}) {
    EXPECT_TRUE(IsOwnHost(own, {"metrics.example"})) << own;
  }
  for (const std::string& other :
       {std::string("evil.example"), std::string("localhost.evil.example"),
        std::string("127.0.0.1.evil.example:80"), std::string("[::1"),
        std::string("::1"), std::string(":80"), std::string(300, 'x')}) {
    EXPECT_FALSE(IsOwnHost(other, {"metrics.example"})) << other;
  }
  EXPECT_TRUE(IsOwnHost("evil.example", {"*"}));
}

TEST(HostNamesTest, OnlyLoopbackPeersMayBeBrowsersOfThisMachine) {
  for (const char* loopback : {"127.0.0.1", "127.9.9.9", "::/64"}) {
    EXPECT_TRUE(IsLoopbackPeer(loopback)) << loopback;
  }
  for (const char* other : {"", "10.0.0.1", "2001:db8::/64", "user 0"}) {
    EXPECT_FALSE(IsLoopbackPeer(other)) << other;
  }
}

}  // namespace
}  // namespace foretoken::net
