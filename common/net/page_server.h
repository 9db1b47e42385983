// PageServer: serves one page over HTTP/1.1, for scrapers.
//
// One thread serves all connections, and none can keep it from the others: a
// connection carries one request, has a deadline for it and one for taking the
// page, and when all are in use, the oldest of the peer with the most makes
// room for a new one. Thread-safe.
#ifndef FORETOKEN_COMMON_NET_PAGE_SERVER_H_
#define FORETOKEN_COMMON_NET_PAGE_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/net/bound_socket.h"

namespace foretoken::net {

struct PageServerOptions {
  std::string path = "/metrics";
  std::string content_type = "text/plain; version=0.0.4; charset=utf-8";
  // Host names besides localhost that clients on this machine may ask for, such
  // as a proxy's; "*" allows all (host_names.h).
  std::vector<std::string> allowed_hosts;
  int max_connections = 64;
  // Time for the whole request, and then for the client to take the page.
  absl::Duration request_time = absl::Seconds(5);
  absl::Duration answer_time = absl::Seconds(10);
};

class PageServer {
 public:
  // `page` is called on the server's thread, once for all requests that are
  // ready at the same time. Unavailable names the address that cannot be
  // listened on.
  static absl::StatusOr<std::unique_ptr<PageServer>> Start(
      const PageServerOptions& options, BoundSocket bound,
      std::function<std::string()> page);
  ~PageServer();

  int port() const;
  int64_t served() const;  // requests answered so far
  int open() const;        // connections

 private:
  class Impl;
  explicit PageServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace foretoken::net

#endif  // FORETOKEN_COMMON_NET_PAGE_SERVER_H_
