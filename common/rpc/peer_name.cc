#include "common/rpc/peer_name.h"

#include <arpa/inet.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace foretoken::rpc {

std::string PeerName(in6_addr address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    return inet_ntop(AF_INET, address.s6_addr + 12, text, sizeof(text));
  }
  std::fill_n(address.s6_addr + 8, 8, uint8_t{0});
  return absl::StrCat(inet_ntop(AF_INET6, &address, text, sizeof(text)), "/64");
}

std::string PeerName(absl::string_view grpc_peer) {
  absl::string_view host = grpc_peer;
  if (absl::ConsumePrefix(&host, "ipv4:")) {
    return std::string(host.substr(0, host.rfind(':')));
  }
  if (!absl::ConsumePrefix(&host, "ipv6:")) return std::string(grpc_peer);
  std::string address =
      absl::StrReplaceAll(host, {{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}});
  address = address.substr(0, address.rfind(']'));
  address = address.substr(0, address.find('%'));  // the zone
  in6_addr parsed{};
  if (address.empty() || address[0] != '[' ||
      inet_pton(AF_INET6, address.c_str() + 1, &parsed) != 1) {
    return std::string(grpc_peer);
  }
  return PeerName(parsed);
}

}  // namespace foretoken::rpc
