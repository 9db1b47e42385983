// The playground: one HTML document without outside parts, and the policy that
// it must be served with.
//
// Both are made at build time of index.html (embed.cmake). Thread-safe.
#ifndef FORETOKEN_SERVICES_GATEWAY_PAGE_PAGE_H_
#define FORETOKEN_SERVICES_GATEWAY_PAGE_PAGE_H_

#include "absl/strings/string_view.h"

namespace foretoken::gateway {

// UTF-8, text/html.
absl::string_view PageHtml();
// The value of Content-Security-Policy: allows the page's own script and style
// by their SHA-256, requests to its own origin, and nothing else.
absl::string_view PagePolicy();

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_PAGE_PAGE_H_
