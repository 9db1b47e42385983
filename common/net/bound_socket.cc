#include "common/net/bound_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/net/address.h"

namespace foretoken::net {
namespace {

void SetOption(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof(value));
}

}  // namespace

absl::Status CannotListen(absl::string_view address, absl::string_view why) {
  return absl::UnavailableError(
      absl::StrCat("cannot listen on ", address, ": ", why));
}

absl::StatusOr<BoundSocket> BoundSocket::Bind(const std::string& address) {
  const HostPort parts = SplitHostPort(address);
  if (parts.port.empty()) return CannotListen(address, "want HOST:PORT");
  const std::string host(parts.host);
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(host.empty() ? nullptr : host.c_str(),
                  std::string(parts.port).c_str(), &hints, &found);
  if (error != 0) return CannotListen(address, gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(
      found, freeaddrinfo);
  std::string why = "no address";
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    const int fd =
        socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
      why = strerror(errno);
      continue;
    }
    BoundSocket made(fd, address);
    if (a->ai_family == AF_INET6) {  // [::] is every address
      SetOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    }
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0) return made;
    // Two sockets with SO_REUSEADDR can bind one address as long as neither
    // listens, and a model may be loaded meanwhile. So it is tried only where
    // the address is in use, be it by connections in TIME_WAIT: a restart can
    // bind at once.
    if (errno == EADDRINUSE) {
      SetOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);
      if (bind(fd, a->ai_addr, a->ai_addrlen) == 0) return made;
    }
    why = strerror(errno);
  }
  return CannotListen(address, why);
}

BoundSocket::~BoundSocket() {
  if (fd_ >= 0) close(fd_);
}

int BoundSocket::port() const {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

absl::StatusOr<int> BoundSocket::Listen(int backlog) && {
  // Connections inherit it, and keep the address from a restart without it.
  SetOption(fd_, SOL_SOCKET, SO_REUSEADDR, 1);
  if (listen(fd_, backlog) != 0) return CannotListen(name_, strerror(errno));
  return std::exchange(fd_, -1);
}

}  // namespace foretoken::net
