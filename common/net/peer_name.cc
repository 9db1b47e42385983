#include "common/net/peer_name.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/net/address.h"

namespace foretoken::net {

std::string PeerName(in6_addr address) {
  char text[INET6_ADDRSTRLEN] = "";
  // A dual-stack socket shows IPv4 peers as ::ffff:a.b.c.d.
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    return inet_ntop(AF_INET, address.s6_addr + 12, text, sizeof(text));
  }
  // One subscriber usually has a whole /64: its addresses count as one peer.
  std::fill_n(address.s6_addr + 8, 8, uint8_t{0});
  return absl::StrCat(inet_ntop(AF_INET6, &address, text, sizeof(text)), "/64");
}

std::string PeerName(absl::string_view grpc_peer) {
  absl::string_view host = grpc_peer;
  if (absl::ConsumePrefix(&host, "ipv4:")) {
    return std::string(SplitHostPort(host).host);
  }
  if (!absl::ConsumePrefix(&host, "ipv6:")) return std::string(grpc_peer);
  // gRPC writes "ipv6:%5B::1%5D:80", percent-encoded as in a URI.
  const std::string decoded =
      absl::StrReplaceAll(host, {{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}});
  std::string address(SplitHostPort(decoded).host);
  address = address.substr(0, address.find('%'));  // the zone
  in6_addr parsed{};
  if (inet_pton(AF_INET6, address.c_str(), &parsed) != 1) {
    return std::string(grpc_peer);
  }
  return PeerName(parsed);
}

std::string PeerOfSocket(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return "";
  }
  if (address.ss_family == AF_UNIX) {
    ucred user{};
    // Unix sockets have no address: users tell their clients apart.
    length = sizeof(user);
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &length);
    return absl::StrCat("user ", user.uid);
  }
  if (address.ss_family == AF_INET) {
    char text[INET_ADDRSTRLEN] = "";
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    return inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
  }
  return PeerName(reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

}  // namespace foretoken::net
