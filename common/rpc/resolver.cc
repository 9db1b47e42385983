#include "common/rpc/resolver.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "common/net/address.h"

namespace foretoken::rpc {
namespace {

// `flags` are those of getaddrinfo.
int LookUp(const std::string& host, int flags, addrinfo** found) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;  // one entry for each address
  hints.ai_flags = flags;
  return getaddrinfo(host.c_str(), nullptr, &hints, found);
}

class GetAddrInfo final : public Resolver {
 public:
  absl::StatusOr<std::vector<std::string>> Resolve(
      const std::string& host_port) override {
    const net::HostPort parts = net::SplitHostPort(host_port);
    const std::string host(parts.host);
    addrinfo* found = nullptr;
    // AI_ADDRCONFIG leaves out the families that this machine has no address
    // of, and would refuse the literal ::1 without IPv6.
    int error = LookUp(host, AI_NUMERICHOST, &found);
    if (error == EAI_NONAME) error = LookUp(host, AI_ADDRCONFIG, &found);
    if (error == EAI_NONAME || error == EAI_NODATA) {
      return absl::NotFoundError(absl::StrCat(host, " has no address"));
    }
    if (error != 0) {
      return absl::UnavailableError(
          absl::StrCat(host, ": ", gai_strerror(error)));
    }
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(
        found, freeaddrinfo);
    // If the host has both families, only IPv4 addresses are used: the same
    // member would otherwise be counted twice.
    bool any_v4 = false;
    for (const addrinfo* entry = found; entry != nullptr;
         entry = entry->ai_next) {
      any_v4 = any_v4 || entry->ai_family == AF_INET;
    }
    std::vector<std::string> addresses;
    for (const addrinfo* entry = found; entry != nullptr;
         entry = entry->ai_next) {
      if (entry->ai_family != (any_v4 ? AF_INET : AF_INET6)) continue;
      std::array<char, NI_MAXHOST> text{};
      // Keeps the zone of a link-local address, which inet_ntop drops.
      if (getnameinfo(entry->ai_addr, entry->ai_addrlen, text.data(),
                      text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
        continue;
      }
      std::string address = net::JoinHostPort(text.data(), parts.port);
      if (std::find(addresses.begin(), addresses.end(), address) ==
          addresses.end()) {
        addresses.push_back(std::move(address));
      }
    }
    if (addresses.empty()) {
      return absl::NotFoundError(absl::StrCat(host, " has no IP address"));
    }
    return addresses;
  }
};

}  // namespace

std::shared_ptr<Resolver> SystemResolver() {
  return std::make_shared<GetAddrInfo>();
}

}  // namespace foretoken::rpc
