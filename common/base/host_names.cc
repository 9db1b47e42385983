#include "common/base/host_names.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace foretoken {
namespace {

constexpr size_t kMaxHostBytes = 255;

bool IsAddress(int family, const std::string& text) {
  in6_addr parsed{};  // has room for both families
  return inet_pton(family, text.c_str(), &parsed) == 1;
}

}  // namespace

bool IsLoopbackPeer(absl::string_view peer) {
  // IPv6 peers are networks; that of ::1 has no other address in use.
  return absl::StartsWith(peer, "127.") || peer == "::/64";
}

bool IsOwnHost(absl::string_view host,
               const std::vector<std::string>& allowed) {
  if (host.empty()) return true;
  if (host.size() > kMaxHostBytes) return false;
  if (host.front() == '[') {
    const size_t end = host.find(']');
    return end != absl::string_view::npos &&
           IsAddress(AF_INET6, std::string(host.substr(1, end - 1)));
  }
  host = host.substr(0, host.find(':'));
  absl::ConsumeSuffix(&host, ".");
  const std::string name = absl::AsciiStrToLower(host);
  if (name == "localhost" || IsAddress(AF_INET, name)) return true;
  return std::any_of(allowed.begin(), allowed.end(),
                     [&](const std::string& each) {
                       return each == "*" || absl::EqualsIgnoreCase(each, name);
                     });
}

}  // namespace foretoken
