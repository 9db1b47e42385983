#include "common/net/listener.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/process_limits.h"
#include "common/base/status_macros.h"
#include "common/net/address.h"

namespace foretoken::net {
namespace {

// Connections that the kernel queues per socket; also the number accepted from
// one socket before the others have a turn.
constexpr int kBacklog = 1024;
// Wait after an accept that failed for want of descriptors or memory; doubles
// up to the maximum.
constexpr int kFirstBackoffMs = 20;
constexpr int kMaxBackoffMs = 1000;
constexpr absl::Duration kRefusalLogInterval = absl::Seconds(10);

void SetOption(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof(value));
}

// Binds and listens; closes `fd` on failure.
absl::StatusOr<int> Listen(int fd, const sockaddr* address, socklen_t length,
                           const std::string& name) {
  if (fd >= 0 && bind(fd, address, length) == 0 && listen(fd, kBacklog) == 0) {
    return fd;
  }
  const std::string why = strerror(errno);
  if (fd >= 0) close(fd);
  return CannotListen(name, why);
}

int NewSocket(int family) {
  return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

// Inode of the Unix socket at `path`; nullopt if there is none.
std::optional<ino_t> SocketAt(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) {
    return std::nullopt;
  }
  return info.st_ino;
}

absl::StatusOr<int> ListenUnix(const std::string& path,
                               const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // ValidateAddress has checked that the path fits.
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  // Removes the socket of a killed process, which would make bind fail. A file
  // of another kind is not removed: bind then reports it.
  if (SocketAt(path).has_value()) unlink(path.c_str());
  return Listen(NewSocket(AF_UNIX), reinterpret_cast<sockaddr*>(&address),
                sizeof(address), name);
}

absl::StatusOr<ReservedAddress> Reserve(const std::string& address) {
  ReservedAddress reserved{address, std::nullopt};
  if (!IsUnixAddress(address)) {
    FORETOKEN_ASSIGN_OR_RETURN(reserved.bound, BoundSocket::Bind(address));
    return reserved;
  }
  const std::string path = UnixPath(address);
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  if (access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0) {
    return CannotListen(address, strerror(errno));
  }
  return reserved;
}

}  // namespace

Listener::Listener(ConnectionLimits limits, absl::Duration send_timeout)
    : send_timeout_(send_timeout), table_(limits) {
  stop_event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);  // Bind looks at it
  CountServers(1);
}

Listener::~Listener() {
  Stop();
  if (stop_event_ >= 0) close(stop_event_);
  CountServers(-1);
}

absl::StatusOr<std::vector<ReservedAddress>> ReserveAddresses(
    const std::vector<std::string>& addresses) {
  std::vector<ReservedAddress> reserved;
  for (const std::string& address : addresses) {
    FORETOKEN_ASSIGN_OR_RETURN(reserved.emplace_back(), Reserve(address));
  }
  return reserved;
}

absl::StatusOr<std::string> Listener::Bind(const std::string& address,
                                           ConnectionHandler handler) {
  FORETOKEN_ASSIGN_OR_RETURN(ReservedAddress reserved, Reserve(address));
  return Bind(std::move(reserved), std::move(handler));
}

absl::StatusOr<std::string> Listener::Bind(ReservedAddress address,
                                           ConnectionHandler handler) {
  const std::string& name = address.name;
  if (stop_event_ < 0) return CannotListen(name, "out of descriptors");
  Socket socket;
  socket.handler = std::move(handler);
  std::string bound = name;
  if (address.bound.has_value()) {
    bound = JoinHostPort(SplitHostPort(name).host,
                         absl::StrCat(address.bound->port()));
    FORETOKEN_ASSIGN_OR_RETURN(socket.fd,
                               (*std::move(address.bound)).Listen(kBacklog));
  } else {
    socket.unix_path = UnixPath(name);
    FORETOKEN_ASSIGN_OR_RETURN(socket.fd, ListenUnix(socket.unix_path, name));
    socket.inode = SocketAt(socket.unix_path).value_or(0);
  }
  sockets_.push_back(std::move(socket));
  return bound;
}

void Listener::Start() {
  if (!sockets_.empty()) thread_ = std::thread([this] { Run(); });
}

void Listener::Stop() {
  if (thread_.joinable()) {
    FORETOKEN_CHECK(eventfd_write(stop_event_, 1) == 0);
    thread_.join();
  }
  for (const Socket& socket : sockets_) {
    close(socket.fd);
    if (!socket.unix_path.empty() &&
        // A successor may have put its own socket at this path already: remove
        // only our own.
        SocketAt(socket.unix_path) == socket.inode) {
      unlink(socket.unix_path.c_str());
    }
  }
  sockets_.clear();
}

void Listener::Run() {
  std::vector<pollfd> polled;
  for (const Socket& socket : sockets_) {
    polled.push_back({socket.fd, POLLIN, 0});
  }
  const pollfd stop = {stop_event_, POLLIN, 0};
  int backoff_ms = 0;
  while (true) {
    // During a back-off only the stop event wakes the thread.
    std::vector<pollfd> waited = {stop};
    if (backoff_ms == 0) {
      waited.insert(waited.end(), polled.begin(), polled.end());
    }
    poll(waited.data(), waited.size(), backoff_ms == 0 ? -1 : backoff_ms);
    if (waited[0].revents != 0) return;
    bool ran_out = false;
    // Try every socket, whichever was ready: they do not block, and after a
    // back-off the poll has not looked at them.
    for (const Socket& socket : sockets_) ran_out |= !AcceptAll(socket);
    if (!ran_out) {
      backoff_ms = 0;
    } else {
      backoff_ms = std::clamp(2 * backoff_ms, kFirstBackoffMs, kMaxBackoffMs);
    }
  }
}

bool Listener::AcceptAll(const Socket& socket) {
  // Bounded, so that one busy address does not keep others waiting.
  for (int i = 0; i < kBacklog; ++i) {
    const int fd =
        accept4(socket.fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
          errno == ENOMEM) {
        return false;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
      continue;  // this connection failed before it was accepted
    }
    // Over a limit. Closing at once costs less than letting clients wait in the
    // backlog.
    if (!table_.Add(fd)) {
      close(fd);
      // The first refusal is logged at once, then at most one line per
      // interval.
      if (refused_++ == 0 || MonotonicNow() >= next_refusal_log_) {
        next_refusal_log_ = MonotonicNow() + kRefusalLogInterval;
        FORETOKEN_LOG(kWarning, "connection limit reached: ", refused_.load(),
                      " connections refused so far");
      }
      continue;
    }
    if (socket.unix_path.empty()) {
      // Tokens are small messages that must not wait for acknowledgements
      // (Nagle's algorithm). gRPC sets this only on listening sockets of its
      // own, whose connections inherit it.
      SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
      SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
                static_cast<int>(absl::ToInt64Milliseconds(send_timeout_)));
    }
    socket.handler(fd);
  }
  return true;
}

}  // namespace foretoken::net
