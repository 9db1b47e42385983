// Addresses in flags: "host:port" (port 0 takes a free one),
// "[::1]:port", "unix:/path/to.sock". Thread-safe.
#ifndef FORETOKEN_COMMON_NET_ADDRESS_H_
#define FORETOKEN_COMMON_NET_ADDRESS_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace foretoken::net {

// Views into the text that was split.
struct HostPort {
  absl::string_view host;  // "::1" of "[::1]:80"
  absl::string_view port;  // empty if there is none
};
// Splits HOST[:PORT] or [IPV6][:PORT], as it stands in flags, URLs and Host
// headers. Both are empty if a bracket is missing; they are not checked
// further.
HostPort SplitHostPort(absl::string_view text);
// "collector:4318", "[::1]:4318"
std::string JoinHostPort(absl::string_view host, absl::string_view port);
// nullopt unless it is 0..65535.
std::optional<int> ParsePort(absl::string_view port);

// InvalidArgument names the address and the expected form.
absl::Status ValidateAddress(const std::string& address);

bool IsUnixAddress(const std::string& address);
// "/path/to.sock" of "unix:/path/to.sock".
std::string UnixPath(const std::string& address);

// An IP address of either family, in digits.
bool IsIpAddress(const std::string& host);

// Reachable from this machine only: a Unix socket, localhost, 127.0.0.0/8,
// ::1. A host name other than localhost never counts as local.
bool IsLocalAddress(const std::string& address);

}  // namespace foretoken::net

#endif  // FORETOKEN_COMMON_NET_ADDRESS_H_
