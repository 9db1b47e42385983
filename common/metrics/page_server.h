// PageServer: serves one page over HTTP/1.1, for scrapers.
//
// One thread serves all connections, and none can keep it from the others: a
// connection carries one request, has a deadline for it and one for taking the
// page, and when all are in use, the oldest of the address with the most makes
// room for a new one. Thread-safe.
#ifndef FORETOKEN_COMMON_METRICS_PAGE_SERVER_H_
#define FORETOKEN_COMMON_METRICS_PAGE_SERVER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/net/bound_socket.h"

namespace foretoken::metrics {

struct PageServerOptions {
  std::string address;  // HOST:PORT, port 0 takes a free one
  std::string path = "/metrics";
  std::string content_type = "text/plain; version=0.0.4; charset=utf-8";
  // Names besides localhost under which clients on this machine may ask: those
  // of a proxy; "*": all (common/net/host_names.h).
  std::vector<std::string> allowed_hosts;
  int max_connections = 64;
  // Time for the whole request, and then for the client to take the page.
  absl::Duration request_time = absl::Seconds(5);
  absl::Duration answer_time = absl::Seconds(10);
};

class PageServer {
 public:
  // `page` is called on the server's thread, once for all requests that are
  // ready at the same time. Unavailable names the address that cannot be bound.
  static absl::StatusOr<std::unique_ptr<PageServer>> Start(
      const PageServerOptions& options, std::function<std::string()> page);
  // Likewise, on options.address, which has been bound before.
  static absl::StatusOr<std::unique_ptr<PageServer>> Start(
      const PageServerOptions& options, net::BoundSocket bound,
      std::function<std::string()> page);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  int port() const { return port_; }
  int64_t served() const { return served_; }  // requests answered so far
  int open() const { return open_; }          // connections

 private:
  struct Connection {
    int fd = -1;
    std::string peer;  // its address, see PeerKey
    absl::Time deadline;
    std::string request;                        // until its end has arrived
    std::shared_ptr<const std::string> answer;  // then
    size_t sent = 0;
  };
  using Connections = std::list<Connection>;  // oldest first

  PageServer(const PageServerOptions& options,
             std::function<std::string()> page);

  void Run();
  // False if descriptors or memory ran out.
  bool AcceptAll();
  // Reads or writes what is possible; false when the connection is done.
  bool Serve(Connection& connection);
  bool Receive(Connection& connection);
  std::shared_ptr<const std::string> Answer(const Connection& connection);
  // The connection that makes room for the newest one.
  Connections::iterator Displaced();
  void Close(Connections::iterator connection);

  const PageServerOptions options_;
  const std::function<std::string()> page_;
  int listener_ = -1;
  int stop_event_ = -1;
  int port_ = 0;
  std::atomic<int64_t> served_{0};
  std::atomic<int> open_{0};
  // The thread's:
  Connections connections_;
  std::shared_ptr<const std::string> rendered_;  // in this turn of the loop
  std::thread thread_;
};

}  // namespace foretoken::metrics

#endif  // FORETOKEN_COMMON_METRICS_PAGE_SERVER_H_
