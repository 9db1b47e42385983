// HTTP/1.1 for short requests to a neighbour, such as a collector of spans.
// Thread-safe.
#ifndef FORETOKEN_COMMON_NET_HTTP_CLIENT_H_
#define FORETOKEN_COMMON_NET_HTTP_CLIENT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace foretoken::net {

// http://HOST[:PORT][/PATH]
struct HttpUrl {
  std::string host;  // an IPv6 address without its brackets
  std::string port;
  std::string path;

  // `port` and `path` are those of a URL without its own. InvalidArgument for
  // any other scheme: a peer on this machine or next to it does the encryption.
  static absl::StatusOr<HttpUrl> Parse(absl::string_view url,
                                       absl::string_view port,
                                       absl::string_view path);
};

// Posts a body on a connection of its own. Unavailable unless the answer is
// 2xx, DeadlineExceeded if it takes longer than `timeout` and a resolver's
// time. The answer is read up to its status.
absl::Status HttpPost(const HttpUrl& url, absl::string_view content_type,
                      std::string body, absl::Duration timeout);

}  // namespace foretoken::net

#endif  // FORETOKEN_COMMON_NET_HTTP_CLIENT_H_
