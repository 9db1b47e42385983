#include "common/net/peer_name.h"

#include "gtest/gtest.h"

namespace foretoken::net {
namespace {

TEST(PeerNameTest, AHostHasOneNameWhateverItsPortAndItsIpv6Address) {
  EXPECT_EQ(PeerName("ipv4:127.0.0.1:4711"), "127.0.0.1");
  EXPECT_EQ(PeerName("ipv6:%5B2001:db8:0:1:2::3%5D:4711"), "2001:db8:0:1::/64");
  EXPECT_EQ(PeerName("ipv6:%5B2001:db8:0:1:aa::%5D:1"), "2001:db8:0:1::/64");
  EXPECT_EQ(PeerName("ipv6:%5Bfe80::1%25eth0%5D:1"), "fe80::/64");
  EXPECT_EQ(PeerName("ipv6:%5B::ffff:10.0.0.7%5D:1"), "10.0.0.7");
  EXPECT_EQ(PeerName("ipv6:[2001:db8::1]:80"), "2001:db8::/64");
  EXPECT_EQ(PeerName("unix:/run/foretoken.sock"), "unix:/run/foretoken.sock");
  EXPECT_EQ(PeerName("ipv6:nonsense"), "ipv6:nonsense");
  EXPECT_EQ(PeerName(""), "");
}

}  // namespace
}  // namespace foretoken::net
