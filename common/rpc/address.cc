#include "common/rpc/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace foretoken::rpc {
namespace {

constexpr absl::string_view kUnixPrefix = "unix:";

}  // namespace

std::string UnixPath(const std::string& address) {
  return address.substr(kUnixPrefix.size());
}

absl::string_view HostOf(absl::string_view address) {
  // The last colon: an IPv6 address in brackets has others.
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos) return "";
  absl::string_view host = address.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  return host;
}

absl::string_view PortOf(absl::string_view address) {
  return address.substr(address.rfind(':') + 1);
}

bool IsUnixAddress(const std::string& address) {
  return absl::StartsWith(address, kUnixPrefix);
}

absl::Status ValidateAddress(const std::string& address) {
  if (IsUnixAddress(address)) {
    const size_t length = address.size() - kUnixPrefix.size();
    // sun_path needs room for the terminating zero.
    if (length > 0 && length < sizeof(sockaddr_un::sun_path)) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("address ", address, ": want a path of 1..",
                     sizeof(sockaddr_un::sun_path) - 1, " bytes"));
  }
  const absl::string_view view = address;
  int port = -1;
  if (HostOf(view).empty() || !absl::SimpleAtoi(PortOf(view), &port) ||
      port < 0 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat(
        "address \"", address, "\": want HOST:PORT or unix:/PATH"));
  }
  return absl::OkStatus();
}

bool IsLocalAddress(const std::string& address) {
  if (IsUnixAddress(address)) return true;
  const std::string host(HostOf(address));
  // Another name may resolve to anything, now or later.
  if (host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) {
    return (ntohl(v4.s_addr) >> 24) == 127;
  }
  in6_addr v6{};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 &&
         IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace foretoken::rpc
