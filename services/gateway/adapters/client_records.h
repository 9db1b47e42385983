// ClientRecords: follows the headers of a client's TLS records and refuses what
// OpenSSL would spend memory or time on.
//
// - A ClientHello over 16 KiB: OpenSSL allocates the length that a message
//   announces, up to 128 KiB, before the message arrives. The hello may be
//   split over records, and a second one may follow HelloRetryRequest.
// - Renegotiation: OpenSSL answers each attempt with a warning, for ever. After
//   the handshake of TLS 1.2 only a ClientHello comes in handshake records;
//   those of TLS 1.3 are encrypted and look like application data.
// - Anything that does not begin with a handshake record.
//
// Formats: RFC 8446, sections 4 and 5.1; RFC 5246, sections 6.2.1 and 7.4.
// Thread-compatible.
#ifndef FORETOKEN_SERVICES_GATEWAY_ADAPTERS_CLIENT_RECORDS_H_
#define FORETOKEN_SERVICES_GATEWAY_ADAPTERS_CLIENT_RECORDS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace foretoken::gateway {

class ClientRecords {
 public:
  static constexpr size_t kMaxHelloBytes = size_t{16} << 10;

  // Follows the client's next bytes, however they are split. False: the
  // connection has to end; the bytes must not reach OpenSSL.
  bool Follow(absl::string_view bytes);
  // Call once the handshake is complete.
  void OnHandshakeDone() { handshaking_ = false; }

  // The refused client began with an upper-case letter, as HTTP requests do.
  bool http() const { return http_; }

 private:
  // Fills `header` from the front of `bytes`. True once it is full.
  template <size_t kSize>
  static bool Fill(std::array<uint8_t, kSize>& header, size_t& filled,
                   absl::string_view& bytes);
  bool OnRecord();
  bool FollowHellos(absl::string_view payload);

  bool handshaking_ = true;
  bool hellos_ = true;  // all messages have been a ClientHello
  bool http_ = false;
  bool first_ = true;
  std::array<uint8_t, 5> record_;  // type, version (2), length (2)
  size_t record_filled_ = 0;
  size_t record_left_ = 0;          // bytes of its payload to come
  std::array<uint8_t, 4> message_;  // type, length (3)
  size_t message_filled_ = 0;
  size_t message_left_ = 0;
};

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_ADAPTERS_CLIENT_RECORDS_H_
