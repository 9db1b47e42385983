#include "common/metrics/page_server.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/process_limits.h"
#include "common/base/status_macros.h"
#include "common/net/host_names.h"

namespace foretoken::metrics {
namespace {

constexpr int kBacklog = 128;
// A scraper's request has a few hundred bytes.
constexpr size_t kMaxRequestBytes = 8 << 10;
// Wait after an accept that failed for want of descriptors or memory.
constexpr absl::Duration kBackoff = absl::Milliseconds(100);

std::string Response(absl::string_view status, absl::string_view type,
                     absl::string_view body) {
  return absl::StrCat("HTTP/1.1 ", status, "\r\nContent-Type: ", type,
                      "\r\nContent-Length: ", body.size(),
                      "\r\nConnection: close\r\n\r\n", body);
}

// Key by which connections are counted: an IPv4 address, or the /64 network of
// an IPv6 one, since a host has all of its network's addresses.
std::string PeerKey(const sockaddr_storage& address) {
  const auto bytes = [](const void* from, size_t count) {
    return std::string(static_cast<const char*>(from), count);
  };
  if (address.ss_family == AF_INET) {
    return bytes(&reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
  }
  if (address.ss_family != AF_INET6) return "";
  const uint8_t* const v6 =
      reinterpret_cast<const sockaddr_in6&>(address).sin6_addr.s6_addr;
  static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0,    0,
                                          0, 0, 0, 0, 0xFF, 0xFF};
  const bool is_v4 = std::memcmp(v6, kMapped, sizeof(kMapped)) == 0;
  return is_v4 ? bytes(v6 + sizeof(kMapped), 4) : bytes(v6, 8);
}

bool IsLoopback(const std::string& peer_key) {
  // The /64 of ::1 is all zeros; 127.0.0.0/8 is loopback as a whole.
  return peer_key == std::string(8, '\0') ||
         (peer_key.size() == 4 && peer_key[0] == 127);
}

// Value of the request's Host header; empty if it has none, nullopt if it has
// several, of which a proxy might check another one.
std::optional<absl::string_view> HostOf(absl::string_view head) {
  std::optional<absl::string_view> host;
  for (absl::string_view line : absl::StrSplit(head, '\n')) {
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos ||
        !absl::EqualsIgnoreCase(line.substr(0, colon), "host")) {
      continue;
    }
    if (host.has_value()) return std::nullopt;
    host = absl::StripAsciiWhitespace(line.substr(colon + 1));
  }
  return host.value_or("");
}

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK; }

// Reads what has arrived, up to a limit.
void Discard(int fd) {
  char bytes[2048];
  // Bounded: a client that keeps sending must not hold the thread.
  for (size_t total = 0; total < kMaxRequestBytes;) {
    const ssize_t n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    total += static_cast<size_t>(n);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<PageServer>> PageServer::Start(
    const PageServerOptions& options, std::function<std::string()> page) {
  FORETOKEN_ASSIGN_OR_RETURN(net::BoundSocket bound,
                             net::BoundSocket::Bind(options.address));
  return Start(options, std::move(bound), std::move(page));
}

absl::StatusOr<std::unique_ptr<PageServer>> PageServer::Start(
    const PageServerOptions& options, net::BoundSocket bound,
    std::function<std::string()> page) {
  std::unique_ptr<PageServer> server(new PageServer(options, std::move(page)));
  server->port_ = bound.port();
  FORETOKEN_ASSIGN_OR_RETURN(server->listener_,
                             std::move(bound).Listen(kBacklog));
  if (server->stop_event_ < 0) {
    return net::CannotListen(options.address, "out of descriptors");
  }
  server->thread_ = std::thread([raw = server.get()] { raw->Run(); });
  return server;
}

PageServer::PageServer(const PageServerOptions& options,
                       std::function<std::string()> page)
    : options_(options), page_(std::move(page)) {
  stop_event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);  // Start looks at it
}

PageServer::~PageServer() {
  // The event wakes the thread out of poll; it closes nothing itself.
  if (thread_.joinable()) {
    FORETOKEN_CHECK(eventfd_write(stop_event_, 1) == 0);
    thread_.join();
  }
  while (!connections_.empty()) Close(connections_.begin());
  if (listener_ >= 0) close(listener_);
  if (stop_event_ >= 0) close(stop_event_);
}

// One turn: close what is overdue, poll the rest until the next deadline, serve
// what is ready, accept. No call blocks but poll.
void PageServer::Run() {
  absl::Time accept_after = absl::InfinitePast();
  while (true) {
    const absl::Time now = MonotonicNow();
    absl::Time next = absl::InfiniteFuture();
    std::vector<pollfd> polled = {{stop_event_, POLLIN, 0}};
    const bool accepts = now >= accept_after;
    if (accepts) {
      polled.push_back({listener_, POLLIN, 0});
    } else {
      next = accept_after;
    }
    for (auto it = connections_.begin(); it != connections_.end();) {
      const auto connection = it++;
      if (connection->deadline <= now) {
        Close(connection);
        continue;
      }
      next = std::min(next, connection->deadline);
      const short events = connection->answer == nullptr ? POLLIN : POLLOUT;
      polled.push_back({connection->fd, events, 0});
    }
    const int timeout_ms =
        next == absl::InfiniteFuture()
            ? -1
            : static_cast<int>(absl::ToInt64Milliseconds(next - now)) + 1;
    poll(polled.data(), polled.size(), timeout_ms);
    if (polled[0].revents != 0) return;
    // Requests of one turn share one rendering; the next turn makes another, so
    // that no page is stale.
    rendered_ = nullptr;
    // In the same order as above; connections accepted now come last.
    size_t index = accepts ? 2 : 1;
    for (auto it = connections_.begin(); it != connections_.end();) {
      const auto connection = it++;
      if (polled[index++].revents != 0 && !Serve(*connection)) {
        Close(connection);
      }
    }
    if (accepts && polled[1].revents != 0 && !AcceptAll()) {
      accept_after = MonotonicNow() + kBackoff;
    }
  }
}

bool PageServer::AcceptAll() {
  for (int i = 0; i < kBacklog; ++i) {
    sockaddr_storage address{};
    socklen_t length = sizeof(address);
    const int fd = accept4(listener_, reinterpret_cast<sockaddr*>(&address),
                           &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (WouldBlock()) return true;
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
          errno == ENOMEM) {
        return false;
      }
      continue;  // this connection failed before it was accepted
    }
    connections_.push_back({.fd = fd,
                            .peer = PeerKey(address),
                            .deadline = MonotonicNow() + options_.request_time,
                            .request = {},
                            .answer = nullptr});
    ++open_;
    // A request usually arrives with its connection: it is served before newer
    // connections can displace it.
    if (!Serve(connections_.back())) Close(std::prev(connections_.end()));
    if (static_cast<int64_t>(connections_.size()) >
        std::min<int64_t>(options_.max_connections, MaxPageConnections())) {
      Close(Displaced());
    }
  }
  return true;
}

PageServer::Connections::iterator PageServer::Displaced() {
  absl::flat_hash_map<std::string, int> by_peer;
  int most = 0;
  for (const Connection& connection : connections_) {
    most = std::max(most, ++by_peer[connection.peer]);
  }
  // The newest has had no time for a request.
  const auto newest = std::prev(connections_.end());
  auto displaced = newest;
  for (auto it = connections_.begin(); it != newest; ++it) {
    if (by_peer[it->peer] != most) continue;
    // Rather one that has not sent its request than one that is being answered.
    if (it->answer == nullptr) return it;
    if (displaced == newest) displaced = it;
  }
  return displaced;
}

bool PageServer::Serve(Connection& connection) {
  if (connection.answer == nullptr && !Receive(connection)) return false;
  if (connection.answer == nullptr) return true;
  const std::string& answer = *connection.answer;
  while (connection.sent < answer.size()) {
    const ssize_t n =
        send(connection.fd, answer.data() + connection.sent,
             answer.size() - connection.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return WouldBlock();
    connection.sent += static_cast<size_t>(n);
  }
  // With unread input, close() sends a reset, and the client loses the part of
  // the page that is still on its way.
  Discard(connection.fd);
  shutdown(connection.fd, SHUT_WR);
  return false;
}

bool PageServer::Receive(Connection& connection) {
  char bytes[2048];
  while (true) {
    const ssize_t n = recv(connection.fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return WouldBlock();
    if (n == 0) return false;
    connection.request.append(bytes, static_cast<size_t>(n));
    if (absl::StrContains(connection.request, "\r\n\r\n")) break;
    if (connection.request.size() > kMaxRequestBytes) return false;
  }
  connection.answer = Answer(connection);
  ++served_;
  connection.request.clear();
  connection.deadline = MonotonicNow() + options_.answer_time;
  return true;
}

std::shared_ptr<const std::string> PageServer::Answer(
    const Connection& connection) {
  const absl::string_view request = connection.request;
  const absl::string_view line = request.substr(0, request.find('\r'));
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  constexpr char kPlain[] = "text/plain";
  if (words[0] != "GET") {
    return std::make_shared<std::string>(
        Response("405 Method Not Allowed", kPlain, "want GET\n"));
  }
  const absl::string_view target = words.size() > 1 ? words[1] : "";
  if (target.substr(0, target.find('?')) != options_.path) {
    return std::make_shared<std::string>(Response(
        "404 Not Found", kPlain, absl::StrCat("want ", options_.path, "\n")));
  }
  const std::optional<absl::string_view> host =
      HostOf(request.substr(0, request.find("\r\n\r\n")));
  if (!host.has_value()) {
    return std::make_shared<std::string>(
        Response("400 Bad Request", kPlain, "want one Host\n"));
  }
  // Against DNS rebinding: a web page could let its name resolve to this
  // machine and read the metrics through the user's browser. Remote clients are
  // not checked, since they reach the address anyway.
  if (IsLoopback(connection.peer) &&
      !net::IsOwnHost(*host, options_.allowed_hosts)) {
    return std::make_shared<std::string>(
        Response("403 Forbidden", kPlain,
                 "this page does not answer to the name in Host: see "
                 "--metrics-allowed-hosts\n"));
  }
  if (rendered_ == nullptr) {
    rendered_ = std::make_shared<std::string>(
        Response("200 OK", options_.content_type, page_()));
  }
  return rendered_;
}

void PageServer::Close(Connections::iterator connection) {
  close(connection->fd);
  connections_.erase(connection);
  --open_;
}

}  // namespace foretoken::metrics
