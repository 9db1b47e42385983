#include "tests/attack/http2_connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace foretoken::attack {
namespace {

// Frame types and flags of RFC 9113.
constexpr uint8_t kData = 0x0;
constexpr uint8_t kHeaders = 0x1;
constexpr uint8_t kSettings = 0x4;
constexpr uint8_t kEndStream = 0x1;
constexpr uint8_t kEndHeaders = 0x4;
constexpr uint16_t kInitialWindowSize = 0x4;
constexpr size_t kMaxFrame = 16384;

void AppendBigEndian(uint64_t value, int bytes, std::string& out) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) {
    out.push_back(static_cast<char>(value >> shift));
  }
}

// A literal header field that is not indexed, without Huffman coding (RFC 7541,
// section 6.2.2).
void AppendHeader(absl::string_view name, absl::string_view value,
                  std::string& out) {
  out.push_back(0);
  for (const absl::string_view text : {name, value}) {
    FORETOKEN_CHECK(text.size() < 127);  // longer ones need more bytes
    out.push_back(static_cast<char>(text.size()));
    absl::StrAppend(&out, text);
  }
}

}  // namespace

Http2Connection::Http2Connection(const std::string& address, int receive_buffer)
    : authority_(address) {
  const size_t colon = address.rfind(':');
  int port = 0;
  sockaddr_in to{};
  to.sin_family = AF_INET;
  if (colon == std::string::npos ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) ||
      inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr) != 1) {
    return;
  }
  to.sin_port = htons(static_cast<uint16_t>(port));
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (receive_buffer > 0) {
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer,
               sizeof(receive_buffer));
  }
  // Bounded, where a server has stopped accepting.
  const timeval limit = {1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  if (connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) {
    close(std::exchange(fd_, -1));
  }
}

Http2Connection::Http2Connection(Http2Connection&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      authority_(std::move(other.authority_)),
      next_stream_(other.next_stream_) {}

Http2Connection::~Http2Connection() {
  if (fd_ >= 0) close(fd_);
}

bool Http2Connection::Send(absl::string_view bytes) {
  while (fd_ >= 0 && !bytes.empty()) {
    const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return fd_ >= 0;
}

bool Http2Connection::Answers(int milliseconds) {
  pollfd waited = {fd_, POLLIN, 0};
  char byte = 0;
  return fd_ >= 0 && poll(&waited, 1, milliseconds) == 1 &&
         recv(fd_, &byte, 1, MSG_DONTWAIT) == 1;
}

bool Http2Connection::Drain() {
  char bytes[4096];
  while (true) {
    const ssize_t n = recv(fd_, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n == 0) return false;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
  }
}

bool Http2Connection::SendFrame(uint8_t type, uint8_t flags, uint32_t stream,
                                absl::string_view payload) {
  FORETOKEN_CHECK(payload.size() <= kMaxFrame);
  std::string frame;
  AppendBigEndian(payload.size(), 3, frame);
  AppendBigEndian(type, 1, frame);
  AppendBigEndian(flags, 1, frame);
  AppendBigEndian(stream, 4, frame);
  return Send(absl::StrCat(frame, payload));
}

bool Http2Connection::SendPreface(uint32_t window) {
  std::string settings;
  AppendBigEndian(kInitialWindowSize, 2, settings);
  AppendBigEndian(window, 4, settings);
  return Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") &&
         SendFrame(kSettings, 0, 0, settings);
}

uint32_t Http2Connection::BeginCall(absl::string_view path,
                                    absl::string_view token) {
  std::string headers;
  AppendHeader(":method", "POST", headers);
  AppendHeader(":scheme", "http", headers);
  AppendHeader(":path", path, headers);
  AppendHeader(":authority", authority_, headers);
  AppendHeader("te", "trailers", headers);
  AppendHeader("content-type", "application/grpc", headers);
  if (!token.empty()) {
    AppendHeader("authorization", absl::StrCat("Bearer ", token), headers);
  }
  const uint32_t stream = next_stream_;
  next_stream_ += 2;
  return SendFrame(kHeaders, kEndHeaders, stream, headers) ? stream : 0;
}

bool Http2Connection::SendMessage(uint32_t stream, absl::string_view message) {
  std::string data;
  AppendBigEndian(0, 1, data);  // not compressed
  AppendBigEndian(message.size(), 4, data);
  absl::StrAppend(&data, message);
  return SendFrame(kData, kEndStream, stream, data);
}

}  // namespace foretoken::attack
