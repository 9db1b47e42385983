// RawConnection: a connected socket that says only what it is told to.
#ifndef FORETOKEN_TESTS_SUPPORT_RAW_CONNECTION_H_
#define FORETOKEN_TESTS_SUPPORT_RAW_CONNECTION_H_

#include <string>

#include "absl/strings/string_view.h"

namespace foretoken::testing {

class RawConnection {
 public:
  // `address`: "HOST:PORT" of this machine over IPv4, or "unix:/path".
  // `receive_bytes`: of its socket's buffer; 0 for the kernel's default.
  explicit RawConnection(const std::string& address, int receive_bytes = 0);
  RawConnection(RawConnection&& other) noexcept;
  RawConnection(const RawConnection&) = delete;
  ~RawConnection();

  bool connected() const { return connected_; }
  // False if the server has closed the connection.
  bool Say(absl::string_view bytes) const;
  // What the server says up to the end of the first `text`, or until it closes
  // its end; waits for either.
  std::string ReadUntil(absl::string_view text) const;
  // What the server says until it closes its end; waits for it.
  std::string ReadAll() const;
  // What the server says next, up to 16 KiB; waits for it. Empty at its end.
  std::string ReadSome() const;
  // Says nothing more, and still reads.
  void EndSending() const;
  // The server has closed its end. Drops what it said before.
  bool Closed() const;

 private:
  int fd_ = -1;
  bool connected_ = false;
};

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_SUPPORT_RAW_CONNECTION_H_
