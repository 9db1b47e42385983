// Names of the machines at the other end of connections, under which limits and
// shares are kept.
#ifndef FORETOKEN_COMMON_NET_PEER_NAME_H_
#define FORETOKEN_COMMON_NET_PEER_NAME_H_

#include <netinet/in.h>

#include <string>

#include "absl/strings/string_view.h"

namespace foretoken::net {

// The /64 network of an IPv6 address, because one host may use every address of
// it; of an IPv4-mapped address, the IPv4 address.
std::string PeerName(in6_addr address);

// The peer of a call as gRPC writes it ("ipv4:127.0.0.1:4711",
// "ipv6:%5B2001:db8::1%5D:4711", "unix:..."), without its port: an IPv4
// address, an IPv6 network, or the text itself.
std::string PeerName(absl::string_view grpc_peer);

// The peer of a connected socket: an IPv4 address, an IPv6 network, or the user
// of a Unix socket. Empty if the peer has gone.
std::string PeerOfSocket(int fd);

}  // namespace foretoken::net

#endif  // FORETOKEN_COMMON_NET_PEER_NAME_H_
