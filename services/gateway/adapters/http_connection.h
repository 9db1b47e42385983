// Connection: a client of the server, with its requests in their order.
#ifndef FORETOKEN_SERVICES_GATEWAY_ADAPTERS_HTTP_CONNECTION_H_
#define FORETOKEN_SERVICES_GATEWAY_ADAPTERS_HTTP_CONNECTION_H_

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>

#include "common/base/byte_budget.h"
#include "services/gateway/adapters/beast_server.h"
#include "services/gateway/adapters/http_server_options.h"
#include "services/gateway/adapters/tls_sessions.h"
#include "services/gateway/core/http.h"

namespace foretoken::gateway::beast_server {

// The part of the server that its connections use.
struct Shared {
  Shared(const HttpServerOptions& from, HttpHandler& to,
         HttpServerObserver& watcher)
      : options(from),
        handler(to),
        observer(watcher),
        memory(from.body_memory) {}

  const HttpServerOptions options;
  HttpHandler& handler;
  HttpServerObserver& observer;
  ByteBudget memory;
  std::unique_ptr<TlsSessions> tls;  // null: plain; set before connections come
  std::atomic<int64_t> active{0};
  // Connections whose last answer has been sent and may not have been read.
  std::atomic<int64_t> lingering{0};
  std::atomic<bool> draining{false};
};

// All of it on the thread of its io_context.
//
// It reads all the time: before a request, the request itself, and while the
// answer is written, because that is how a client that goes away is noticed.
// The bytes after a request wait here, up to a limit: a client that sends more
// before it has its answer is cut off, since its end could hide behind unread
// bytes.
class Connection {
 public:
  using Closed = std::function<void(const std::shared_ptr<Connection>&)>;

  virtual ~Connection() = default;
  // `closed` is called once, on the connection's thread.
  virtual void Start(Closed closed) = 0;
  // Closes the connection unless it answers a request.
  virtual void CloseIdle() = 0;
  virtual void Close() = 0;
};

// Takes the connected socket `fd`. Null, with the socket closed, if it cannot
// be used.
std::shared_ptr<Connection> MakeConnection(Shared& shared,
                                           boost::asio::io_context& io, int fd);

}  // namespace foretoken::gateway::beast_server

#endif  // FORETOKEN_SERVICES_GATEWAY_ADAPTERS_HTTP_CONNECTION_H_
