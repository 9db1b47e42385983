// BoundSocket: a TCP address of this machine that nothing listens on yet.
//
// A service binds its addresses before it loads a model, so that one in use
// fails the start at once. Connections are refused until Listen.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_NET_BOUND_SOCKET_H_
#define FORETOKEN_COMMON_NET_BOUND_SOCKET_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace foretoken::net {

// UNAVAILABLE: "cannot listen on ADDRESS: WHY".
absl::Status CannotListen(absl::string_view address, absl::string_view why);

class BoundSocket {
 public:
  // Binds a non-blocking socket to HOST:PORT or [IPV6]:PORT. An empty host is
  // every address of the machine, port 0 a free one. Unavailable names the
  // address.
  static absl::StatusOr<BoundSocket> Bind(const std::string& address);
  ~BoundSocket();
  BoundSocket(BoundSocket&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), name_(std::move(other.name_)) {}
  BoundSocket& operator=(BoundSocket&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(name_, other.name_);
    return *this;
  }

  const std::string& name() const { return name_; }  // the address as given
  // The real one.
  int port() const;

  // Listens, and returns the descriptor, which is the caller's from then on.
  // Unavailable if another socket listens on the address: two can be bound to
  // one that connections of an earlier process still hold.
  absl::StatusOr<int> Listen(int backlog) &&;

 private:
  BoundSocket(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}

  int fd_ = -1;
  std::string name_;
};

}  // namespace foretoken::net

#endif  // FORETOKEN_COMMON_NET_BOUND_SOCKET_H_
