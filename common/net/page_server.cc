#include "common/net/page_server.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <iterator>
#include <list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/process_limits.h"
#include "common/base/status_macros.h"
#include "common/net/host_names.h"
#include "common/net/http_text.h"
#include "common/net/peer_name.h"

namespace foretoken::net {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr int kBacklog = 128;
// A scraper's request has a few hundred bytes.
constexpr uint32_t kMaxRequestBytes = 8 << 10;
// Wait after an accept that failed for want of descriptors or memory.
constexpr auto kBackoff = std::chrono::milliseconds(100);

struct Connection {
  explicit Connection(tcp::socket socket)
      : stream(std::move(socket)),
        peer(PeerOfSocket(stream.socket().native_handle())) {
    request.header_limit(kMaxRequestBytes);
  }

  beast::tcp_stream stream;
  const std::string peer;
  beast::flat_buffer received{kMaxRequestBytes};
  http::request_parser<http::empty_body> request;
  bool asked = false;  // its request has arrived
};
using ConnectionPtr = std::shared_ptr<Connection>;
using Text = std::shared_ptr<const std::string>;

absl::string_view View(beast::string_view text) {
  return {text.data(), text.size()};
}

Text Response(int status, absl::string_view type, absl::string_view body) {
  return std::make_shared<const std::string>(LastAnswer(status, type, body));
}

// Ends the server's side of a connection whose answer has been written.
void Finish(tcp::socket& socket) {
  error_code ignored;
  // With unread input, close() sends a reset, and the client loses the part of
  // the page that is still on its way. Bounded: a client that keeps sending
  // must not hold the thread.
  char bytes[kMaxRequestBytes];
  socket.non_blocking(true, ignored);
  socket.read_some(asio::buffer(bytes), ignored);
  socket.shutdown(tcp::socket::shutdown_send, ignored);
}

}  // namespace

class PageServer::Impl {
 public:
  Impl(const PageServerOptions& options, std::function<std::string()> page)
      : options_(options), page_(std::move(page)) {}
  ~Impl() {
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Start(BoundSocket bound) {
    const std::string name = bound.name();
    port_ = bound.port();
    FORETOKEN_ASSIGN_OR_RETURN(const int fd, std::move(bound).Listen(kBacklog));
    error_code error;
    // The socket is bound already, so the protocol is not used: it may be IPv4
    // as well.
    acceptor_.assign(tcp::v6(), fd, error);
    if (error) {
      close(fd);
      return CannotListen(name, error.message());
    }
    Accept();
    thread_ = std::thread([this] { io_.run(); });
    return absl::OkStatus();
  }

  int port() const { return port_; }
  int64_t served() const { return served_; }
  int open() const { return open_; }

 private:
  using Connections = std::list<ConnectionPtr>;  // oldest first

  void Accept() {
    acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
      if (!error) {
        Open(std::move(socket));
        Accept();
        return;
      }
      backoff_.expires_after(kBackoff);
      backoff_.async_wait([this](const error_code&) { Accept(); });
    });
  }

  // A request usually arrives with its connection. Asio tries to read before it
  // accepts the next connection, so that this one is served before newer ones
  // can displace it.
  void Open(tcp::socket socket) {
    fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
    const auto connection = std::make_shared<Connection>(std::move(socket));
    connections_.push_back(connection);
    ++open_;
    connection->stream.expires_after(
        absl::ToChronoNanoseconds(options_.request_time));
    http::async_read_header(
        connection->stream, connection->received, connection->request,
        [this, connection](const error_code& error, size_t /*bytes*/) {
          OnRequest(connection, error);
        });
    if (open_ >
        std::min<int64_t>(options_.max_connections, MaxPageConnections())) {
      Close(Displaced());
    }
  }

  // The connection that makes room for the newest one.
  ConnectionPtr Displaced() const {
    absl::flat_hash_map<absl::string_view, int> by_peer;
    int most = 0;
    for (const ConnectionPtr& each : connections_) {
      most = std::max(most, ++by_peer[each->peer]);
    }
    // The newest has had no time for a request.
    const auto newest = std::prev(connections_.end());
    auto displaced = newest;
    for (auto it = connections_.begin(); it != newest; ++it) {
      if (by_peer[(*it)->peer] != most) continue;
      // Rather one that has not sent its request than one that is being
      // answered.
      if (!(*it)->asked) return *it;
      if (displaced == newest) displaced = it;
    }
    return *displaced;
  }

  // Called when a request has arrived, cannot be read, or will not come.
  void OnRequest(const ConnectionPtr& connection, const error_code& error) {
    const bool unreadable =
        error.category() == http::make_error_code(http::error{}).category() &&
        error != http::error::end_of_stream &&
        error != http::error::partial_message;
    if (error && !unreadable) {
      Close(connection);
      return;
    }
    connection->asked = true;
    ++served_;
    // Requests that are ready at the same time share one page; later ones get
    // another, so that no page is stale.
    if (asked_.empty()) asio::post(io_, [this] { AnswerAll(); });
    asked_.push_back(connection);
  }

  void AnswerAll() {
    Text page;
    for (const ConnectionPtr& connection : std::exchange(asked_, {})) {
      connection->stream.expires_after(
          absl::ToChronoNanoseconds(options_.answer_time));
      const Text answer = Answer(*connection, page);
      asio::async_write(
          connection->stream, asio::buffer(*answer),
          [this, connection, answer](const error_code& error, size_t) {
            if (!error) Finish(connection->stream.socket());
            Close(connection);
          });
    }
  }

  // `page`: as it was rendered for the requests before; null: not yet.
  Text Answer(const Connection& connection, Text& page) const {
    constexpr char kPlain[] = "text/plain";
    if (!connection.request.is_header_done()) {
      return Response(400, kPlain, "want a request of HTTP/1\n");
    }
    const auto& request = connection.request.get();
    if (request.method() != http::verb::get) {
      return Response(405, kPlain, "want GET\n");
    }
    const absl::string_view target = View(request.target());
    if (target.substr(0, target.find('?')) != options_.path) {
      return Response(404, kPlain, absl::StrCat("want ", options_.path, "\n"));
    }
    // With several, a proxy might have checked another one than this does.
    if (request.count(http::field::host) > 1) {
      return Response(400, kPlain, "want one Host\n");
    }
    // Against DNS rebinding: a web page could let its name resolve to this
    // machine and read the metrics through the user's browser. Remote clients
    // are not checked, since they reach the address anyway.
    if (IsLoopbackPeer(connection.peer) &&
        !IsOwnHost(View(request[http::field::host]), options_.allowed_hosts)) {
      return Response(403, kPlain,
                      "this page does not answer to the name in Host: see "
                      "--metrics-allowed-hosts\n");
    }
    if (page == nullptr) {
      page = Response(200, options_.content_type, page_());
    }
    return page;
  }

  // May be called again: every call under way ends with an error, which leads
  // here.
  void Close(const ConnectionPtr& connection) {
    const auto found =
        std::find(connections_.begin(), connections_.end(), connection);
    if (found == connections_.end()) return;
    connection->stream.close();
    connections_.erase(found);
    --open_;
  }

  const PageServerOptions options_;
  const std::function<std::string()> page_;
  int port_ = 0;
  std::atomic<int64_t> served_{0};
  std::atomic<int> open_{0};
  asio::io_context io_{1};
  // The thread's:
  tcp::acceptor acceptor_{io_};
  asio::steady_timer backoff_{io_};
  Connections connections_;
  std::vector<ConnectionPtr> asked_;  // to be answered in this turn
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<PageServer>> PageServer::Start(
    const PageServerOptions& options, BoundSocket bound,
    std::function<std::string()> page) {
  std::unique_ptr<Impl> impl;
  try {
    impl = std::make_unique<Impl>(options, std::move(page));
  } catch (const boost::system::system_error& error) {  // out of descriptors
    return CannotListen(bound.name(), error.what());
  }
  FORETOKEN_RETURN_IF_ERROR(impl->Start(std::move(bound)));
  return std::unique_ptr<PageServer>(new PageServer(std::move(impl)));
}

PageServer::PageServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PageServer::~PageServer() = default;

int PageServer::port() const { return impl_->port(); }
int64_t PageServer::served() const { return impl_->served(); }
int PageServer::open() const { return impl_->open(); }

}  // namespace foretoken::net
