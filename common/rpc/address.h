// Addresses in flags: "host:port" (port 0 takes a free one),
// "[::1]:port", "unix:/path/to.sock".
#ifndef FORETOKEN_COMMON_RPC_ADDRESS_H_
#define FORETOKEN_COMMON_RPC_ADDRESS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace foretoken::rpc {

// InvalidArgument names the address and the expected form.
absl::Status ValidateAddress(const std::string& address);

bool IsUnixAddress(const std::string& address);

// The parts of a valid address: "/path/to.sock" of "unix:/path/to.sock"; "::1"
// and "80" of "[::1]:80".
std::string UnixPath(const std::string& address);
absl::string_view HostOf(absl::string_view address);
absl::string_view PortOf(absl::string_view address);

// Reachable from this machine only: a Unix socket, localhost, 127.0.0.0/8,
// ::1. A host name other than localhost never counts as local.
bool IsLocalAddress(const std::string& address);

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_ADDRESS_H_
