// Names by which a server is called. A web page whose own name was made to lead
// to this machine (DNS rebinding) counts as this server's page for a browser,
// which then lets it read answers; only its name in `Host` gives it away. Pure
// functions, thread-safe.
#ifndef FORETOKEN_COMMON_NET_HOST_NAMES_H_
#define FORETOKEN_COMMON_NET_HOST_NAMES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace foretoken::net {

// Whether `peer`, the address of a client (PeerOfSocket), is on this machine
// and may be a browser.
bool IsLoopbackPeer(absl::string_view peer);

// Whether no page of another site can have this `host`, the value of a Host
// header, with or without a port: it is empty (browsers always send one), an IP
// address, localhost, or one of `allowed` ("*": all).
bool IsOwnHost(absl::string_view host, const std::vector<std::string>& allowed);

}  // namespace foretoken::net

#endif  // FORETOKEN_COMMON_NET_HOST_NAMES_H_
