#include "common/net/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace foretoken::net {
namespace {

constexpr absl::string_view kUnixPrefix = "unix:";

}  // namespace

HostPort SplitHostPort(absl::string_view text) {
  // The port follows the last colon, since an IPv6 address has others. After a
  // closing bracket there is a port only if a colon follows it.
  size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos || absl::EndsWith(text, "]")) {
    colon = text.size();
  }
  absl::string_view host = text.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[") && !absl::ConsumeSuffix(&host, "]")) {
    return {};
  }
  return {host, absl::StripPrefix(text.substr(colon), ":")};
}

std::string JoinHostPort(absl::string_view host, absl::string_view port) {
  return absl::StrContains(host, ':') ? absl::StrCat("[", host, "]:", port)
                                      : absl::StrCat(host, ":", port);
}

std::optional<int> ParsePort(absl::string_view port) {
  int number = -1;
  if (!absl::SimpleAtoi(port, &number) || number < 0 || number > 65535) {
    return std::nullopt;
  }
  return number;
}

bool IsUnixAddress(const std::string& address) {
  return absl::StartsWith(address, kUnixPrefix);
}

std::string UnixPath(const std::string& address) {
  return address.substr(kUnixPrefix.size());
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
  const auto [host, port] = SplitHostPort(address);
  if (host.empty() || !ParsePort(port).has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "address \"", address, "\": want HOST:PORT or unix:/PATH"));
  }
  return absl::OkStatus();
}

bool IsIpAddress(const std::string& host) {
  in6_addr parsed{};  // has room for both families
  return inet_pton(AF_INET, host.c_str(), &parsed) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &parsed) == 1;
}

bool IsLocalAddress(const std::string& address) {
  if (IsUnixAddress(address)) return true;
  const std::string host(SplitHostPort(address).host);
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

}  // namespace foretoken::net
