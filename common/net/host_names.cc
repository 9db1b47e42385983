#include "common/net/host_names.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "common/net/address.h"

namespace foretoken::net {
namespace {

constexpr size_t kMaxHostBytes = 255;

}  // namespace

bool IsLoopbackPeer(absl::string_view peer) {
  // IPv6 peers are networks; that of ::1 has no other address in use.
  return absl::StartsWith(peer, "127.") || peer == "::/64";
}

bool IsOwnHost(absl::string_view host,
               const std::vector<std::string>& allowed) {
  if (host.empty()) return true;
  if (host.size() > kMaxHostBytes) return false;
  host = SplitHostPort(host).host;
  absl::ConsumeSuffix(&host, ".");
  const std::string name = absl::AsciiStrToLower(host);
  if (name == "localhost" || IsIpAddress(name)) return true;
  return std::any_of(allowed.begin(), allowed.end(),
                     [&](const std::string& each) {
                       return each == "*" || absl::EqualsIgnoreCase(each, name);
                     });
}

}  // namespace foretoken::net
