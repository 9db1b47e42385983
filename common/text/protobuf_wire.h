// A reader of the protocol-buffer wire format without libprotobuf: field by
// field, without allocation.
//
// Source: protobuf.dev, "Encoding".
#ifndef FORETOKEN_COMMON_TEXT_PROTOBUF_WIRE_H_
#define FORETOKEN_COMMON_TEXT_PROTOBUF_WIRE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace foretoken {

struct WireField {
  enum Type : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  uint32_t number = 0;
  Type type = kVarint;
  uint64_t integer = 0;     // kVarint, kFixed64, kFixed32 (raw bits)
  absl::string_view bytes;  // kBytes; points into the message

  float AsFloat() const;  // of kFixed32
};

// Owned by one thread.
class WireReader {
 public:
  explicit WireReader(absl::string_view message) : rest_(message) {}

  // Reads the next field and returns true; false at the end. InvalidArgument
  // gives the reason if the message is malformed or uses (deprecated) groups.
  absl::StatusOr<bool> Next(WireField& field);

 private:
  absl::StatusOr<uint64_t> Varint();
  absl::StatusOr<uint64_t> Fixed(size_t length);

  absl::string_view rest_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_PROTOBUF_WIRE_H_
