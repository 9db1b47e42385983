// Listener: the accept loop of a server, in front of gRPC's own handling of
// connections.
//
// gRPC 1.51 never accepts again on a listener whose accept failed once for want
// of file descriptors, and limits neither connections nor peers. This loop
// waits and tries again, and refuses connections before descriptors run out.
//
// Thread-safe but for Bind and Start, which come first, in this order.
#ifndef FORETOKEN_COMMON_NET_LISTENER_H_
#define FORETOKEN_COMMON_NET_LISTENER_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/net/bound_socket.h"
#include "common/net/connection_table.h"

namespace foretoken::net {

// Takes a connected, non-blocking socket and owns it from then on.
using ConnectionHandler = std::function<void(int fd)>;

// An address for a Listener. One of TCP is bound, so that it is ours, or known
// to be in use, before anything slow begins; connections are refused until
// then. A Unix socket is not, since a server that is to be replaced may serve
// there still: only its folder is checked.
struct ReservedAddress {
  std::string name;                  // "host:port" or "unix:/path", as given
  std::optional<BoundSocket> bound;  // of TCP
};

// Unavailable names the first address that cannot be listened on.
absl::StatusOr<std::vector<ReservedAddress>> ReserveAddresses(
    const std::vector<std::string>& addresses);

class Listener {
 public:
  // `send_timeout`: a connection is closed when data stays unacknowledged, or
  // the peer's window stays closed, for this long.
  Listener(ConnectionLimits limits, absl::Duration send_timeout);
  ~Listener();  // stops
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Binds "host:port" or "unix:/path"; connections queue from now on. Returns
  // the address with its real port; Unavailable if it cannot be bound.
  absl::StatusOr<std::string> Bind(const std::string& address,
                                   ConnectionHandler handler);
  absl::StatusOr<std::string> Bind(ReservedAddress address,
                                   ConnectionHandler handler);

  // Starts the accept thread.
  void Start();

  // Closes the listening sockets: new connections are refused, accepted ones
  // stay open. No handler runs afterwards.
  void Stop();

  int64_t refused() const { return refused_; }

 private:
  struct Socket {
    int fd = -1;
    std::string unix_path;  // removed when the socket is closed,
    ino_t inode = 0;        // unless another server has put its own there
    ConnectionHandler handler;
  };

  void Run();
  // Accepts what is queued on `socket`. False if descriptors or memory ran out.
  bool AcceptAll(const Socket& socket);

  const absl::Duration send_timeout_;
  std::vector<Socket> sockets_;
  ConnectionTable table_;  // owned by the thread
  int stop_event_ = -1;
  std::atomic<int64_t> refused_{0};
  absl::Time next_refusal_log_ = absl::InfinitePast();  // the thread's
  std::thread thread_;
};

}  // namespace foretoken::net

#endif  // FORETOKEN_COMMON_NET_LISTENER_H_
