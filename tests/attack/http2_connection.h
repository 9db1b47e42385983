// Http2Connection: a connection that speaks just enough HTTP/2 to begin gRPC
// calls, and otherwise does only what it is told to. Without TLS; owned by one
// thread.
#ifndef FORETOKEN_TESTS_ATTACK_HTTP2_CONNECTION_H_
#define FORETOKEN_TESTS_ATTACK_HTTP2_CONNECTION_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace foretoken::attack {

class Http2Connection {
 public:
  // `address`: "HOST:PORT" with an IPv4 address. `receive_buffer`: of the
  // socket, in bytes; 0 for the system's.
  explicit Http2Connection(const std::string& address, int receive_buffer = 0);
  ~Http2Connection();
  Http2Connection(Http2Connection&& other) noexcept;
  Http2Connection(const Http2Connection&) = delete;

  bool connected() const { return fd_ >= 0; }

  // Sends the client's preface and SETTINGS. `window`: initial flow-control
  // window of each stream, in bytes.
  bool SendPreface(uint32_t window = 65535);
  // The headers of a gRPC call of `path` ("/package.Service/Method") on a new
  // stream. `token`: bearer token, or "". Returns the stream, 0 on failure.
  uint32_t BeginCall(absl::string_view path, absl::string_view token);
  // One gRPC message of at most 16 KiB, the last of its stream.
  bool SendMessage(uint32_t stream, absl::string_view message);

  bool Send(absl::string_view bytes);
  // Whether the server sends anything within `milliseconds`.
  bool Answers(int milliseconds);
  // Reads and drops what has arrived; false once the server has closed.
  bool Drain();

 private:
  bool SendFrame(uint8_t type, uint8_t flags, uint32_t stream,
                 absl::string_view payload);

  int fd_ = -1;
  std::string authority_;
  uint32_t next_stream_ = 1;
};

}  // namespace foretoken::attack

#endif  // FORETOKEN_TESTS_ATTACK_HTTP2_CONNECTION_H_
