#include "services/gateway/core/prefix_sharing.h"

#include <algorithm>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/base/digest.h"
#include "common/net/host_names.h"

namespace foretoken::gateway {
namespace {

// Before the name of an authenticated caller.
constexpr char kOwn[] = "own:";
constexpr int kSecretWords = 8;  // of 32 bits

// Headers of proxies, load balancers and tunnels that do not begin with
// kForwardedPrefix.
constexpr char kForwardedPrefix[] = "x-forwarded";
constexpr absl::string_view kForwardedHeaders[] = {"forwarded",
                                                   "forwarded-for",
                                                   "via",
                                                   "x-real-ip",
                                                   "x-client-ip",
                                                   "x-cluster-client-ip",
                                                   "x-original-for",
                                                   "x-original-forwarded-for",
                                                   "client-ip",
                                                   "true-client-ip",
                                                   "cf-connecting-ip",
                                                   "fastly-client-ip",
                                                   "fly-client-ip",
                                                   "x-envoy-external-address",
                                                   "x-proxyuser-ip",
                                                   "wl-proxy-client-ip"};

std::string DrawSecret() {
  std::random_device device;
  std::string secret;
  for (int i = 0; i < kSecretWords; ++i) {
    absl::StrAppendFormat(&secret, "%08x", device());
  }
  return secret;
}

// Whether a page of another site sent it: browsers send a page's origin with
// every POST.
bool IsOfAnotherSite(const HttpRequest& request) {
  const absl::string_view origin = request.Header("Origin");
  if (origin.empty()) return false;
  const size_t scheme = origin.find("://");
  return scheme == absl::string_view::npos ||
         !absl::EqualsIgnoreCase(origin.substr(scheme + 3),
                                 request.Header("Host"));
}

}  // namespace

bool IsForwarded(const HttpRequest& request) {
  return std::any_of(
      request.headers.begin(), request.headers.end(), [](const auto& header) {
        return absl::StartsWithIgnoreCase(header.first, kForwardedPrefix) ||
               std::any_of(std::begin(kForwardedHeaders),
                           std::end(kForwardedHeaders),
                           [&](absl::string_view name) {
                             return absl::EqualsIgnoreCase(header.first, name);
                           });
      });
}

PrefixSharing::PrefixSharing(bool enabled, bool single_user)
    : enabled_(enabled), single_users_(single_user ? DrawSecret() : "") {}

std::string PrefixSharing::ScopeOf(const HttpRequest& request,
                                   const Caller& caller) const {
  // Switched off: no request finds KV of another.
  if (!enabled_) return "";
  if (caller.authenticated) return absl::StrCat(kOwn, caller.name);
  // Names of --allowed-hosts belong to proxies, so only the machine's own names
  // count.
  const bool direct = net::IsLoopbackPeer(request.peer) &&
                      net::IsOwnHost(request.Header("Host"), /*allowed=*/{}) &&
                      !IsForwarded(request) && !IsOfAnotherSite(request);
  return direct ? single_users_ : "";
}

void PrefixSharing::SetScopes(const HttpRequest& head, const Caller& caller,
                              ApiRequest& request) const {
  const std::string own = ScopeOf(head, caller);
  if (request.own_prefixes) request.generation.prefix_scope = own;
  std::string& scope = request.generation.cache_scope;
  // A scope of an authenticated caller is kept apart by the orchestrator, which
  // knows the caller.
  if (scope.empty() || request.scope_fields.empty() || caller.authenticated) {
    return;
  }
  // Without a secret that only this user has, a scope named by the client could
  // be guessed by others: it is ignored, and the answer says so.
  if (own.empty()) {
    scope.clear();
    request.ignored_fields.insert(request.ignored_fields.end(),
                                  request.scope_fields.begin(),
                                  request.scope_fields.end());
    return;
  }
  // Both together, within the limit of a scope.
  scope = HexDigest(HmacSha256(own, scope));
}

}  // namespace foretoken::gateway
