#include "tests/support/raw_connection.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"

namespace foretoken::testing {

RawConnection::RawConnection(const std::string& address, int receive_bytes) {
  absl::string_view path = address;
  if (absl::ConsumePrefix(&path, "unix:")) {
    fd_ = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    path.copy(to.sun_path, sizeof(to.sun_path) - 1);
    connected_ =
        connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
    return;
  }
  fd_ = socket(AF_INET, SOCK_STREAM, 0);
  if (receive_bytes > 0) {
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes,
               sizeof(receive_bytes));
  }
  int port = 0;
  FORETOKEN_CHECK(absl::SimpleAtoi(path.substr(path.rfind(':') + 1), &port));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
}

RawConnection::RawConnection(RawConnection&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_) {}

RawConnection::~RawConnection() {
  if (fd_ >= 0) close(fd_);
}

bool RawConnection::Say(absl::string_view bytes) const {
  return send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

std::string RawConnection::ReadUntil(absl::string_view text) const {
  std::string all;
  char byte = 0;
  while (!absl::EndsWith(all, text) && recv(fd_, &byte, 1, 0) == 1) {
    all.push_back(byte);
  }
  return all;
}

std::string RawConnection::ReadAll() const {
  std::string all;
  char bytes[4096];
  ssize_t n = 0;
  while ((n = recv(fd_, bytes, sizeof(bytes), 0)) > 0) {
    all.append(bytes, static_cast<size_t>(n));
  }
  return all;
}

std::string RawConnection::ReadSome() const {
  std::string some(size_t{16} << 10, '\0');
  const ssize_t n = recv(fd_, some.data(), some.size(), 0);
  some.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return some;
}

void RawConnection::EndSending() const { shutdown(fd_, SHUT_WR); }

bool RawConnection::Closed() const {
  char bytes[256];
  ssize_t n = 0;
  do {
    n = recv(fd_, bytes, sizeof(bytes), MSG_DONTWAIT);
  } while (n > 0);
  return n == 0 || errno == ECONNRESET;
}

}  // namespace foretoken::testing
