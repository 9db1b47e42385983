// BeastServer: HTTP/1.1, plain or in TLS, over Boost.Beast, behind the
// interfaces of core/http.h. Beast's parsers are compiled in http_connection.cc
// alone.
//
// A few threads, each with its own connections. Everything a client can make
// the server hold is bounded: connections in all and per peer (net::Listener),
// headers, bodies and what becomes of them (a byte budget in which no peer can
// take it all, taken as bodies arrive), the time for a request, idle time, and
// what a slow reader has not taken yet: HttpExchange::Write then says so, and a
// client that takes too little, or holds up its answer for too long, is dropped
// (reader_deadline.h).
#ifndef FORETOKEN_SERVICES_GATEWAY_ADAPTERS_BEAST_SERVER_H_
#define FORETOKEN_SERVICES_GATEWAY_ADAPTERS_BEAST_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/net/listener.h"
#include "services/gateway/adapters/http_server_options.h"
#include "services/gateway/core/http.h"

namespace foretoken::gateway {

// Must be thread-safe and fast.
class HttpServerObserver {
 public:
  virtual ~HttpServerObserver() = default;
  virtual void OnConnections(int /*change*/) {}
  // A request that the handler never saw, and the status of its answer.
  virtual void OnRejected(int /*status*/) {}
};

class BeastServer {
 public:
  // Listens at once. InvalidArgument, NotFound or Unavailable name the option,
  // file or address. `handler` and `observer` must outlive the server's Stop.
  // `addresses`: those of options.listen, reserved before; none: it binds them
  // itself.
  static absl::StatusOr<std::unique_ptr<BeastServer>> Start(
      const HttpServerOptions& options, HttpHandler& handler,
      HttpServerObserver& observer,
      std::vector<net::ReservedAddress> addresses = {});
  ~BeastServer();

  // With real ports, in the order of options.listen.
  const std::vector<std::string>& addresses() const;
  // Requests whose answer has not been sent yet.
  int64_t active() const;
  // Connections that stay open for a moment so that the client can read the
  // last answer.
  int64_t lingering() const;

  // Refuses new connections and closes those without a request; the others end
  // with their answer.
  void BeginDrain();
  // Closes everything; clients of unfinished answers count as gone. The handler
  // is not called any more. Exchanges may outlive this, not the server.
  void Stop();

 private:
  class Impl;
  explicit BeastServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_ADAPTERS_BEAST_SERVER_H_
