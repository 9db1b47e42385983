// PrefixSharing: within which scopes a request shares. One that names none
// shares its prefix pages, so that each turn of a chat finds the pages of the
// turns before.
//
// A caller with a key shares with its own requests. Without keys no caller is
// authenticated: requests share only if the server is set up for a single user,
// come from this machine, and were not forwarded by a proxy or sent by a page
// of another site. Only pages are shared; history, phrases and priors need a
// cache scope.
//
// Clients send other servers' names of a cache scope (prompt_cache_key) without
// knowing that here everybody without a key who sends the same shares it. So
// without keys these are for a single user alone; `cache_scope` itself is
// asked for, and stays as it is.
//
// Thread-safe: const methods may be called concurrently.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_PREFIX_SHARING_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_PREFIX_SHARING_H_

#include <string>

#include "common/generation/generation.h"
#include "services/gateway/core/api_request.h"
#include "services/gateway/core/http.h"

namespace foretoken::gateway {

// Whether a header shows that a proxy forwarded the request.
bool IsForwarded(const HttpRequest& request);

class PrefixSharing {
 public:
  // `enabled`: requests share at all. `single_user`: so do those without a key.
  PrefixSharing(bool enabled, bool single_user);

  // For GenerationRequest::prefix_scope; empty: the request shares nothing.
  // `caller` has sent `request`. The orchestrator keeps callers apart; the name
  // of an authenticated one is in the scope all the same, for an orchestrator
  // that takes all of them for the gateway.
  std::string ScopeOf(const HttpRequest& request, const Caller& caller) const;

  // Sets the scopes of `request`, read from the body of `head`. A cache scope
  // that its caller may not name this way is removed, and its fields become
  // ignored ones.
  void SetScopes(const HttpRequest& head, const Caller& caller,
                 ApiRequest& request) const;

 private:
  const bool enabled_;
  // Name of the single user's scope, drawn at start, so that clients that call
  // the orchestrator directly cannot name it. Empty: no single user.
  const std::string single_users_;
};

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_PREFIX_SHARING_H_
