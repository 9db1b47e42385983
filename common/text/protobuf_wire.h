// A reader of the protocol-buffer wire format without libprotobuf: field by
// field, without allocation.
//
// Source: protobuf.dev, "Encoding".
#ifndef FORETOKEN_COMMON_TEXT_PROTOBUF_WIRE_H_
#define FORETOKEN_COMMON_TEXT_PROTOBUF_WIRE_H_

#include <bit>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace foretoken {

struct WireField {
  enum Type : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  uint32_t number = 0;
  Type type = kVarint;
  uint64_t integer = 0;     // kVarint, kFixed64, kFixed32 (raw bits)
  absl::string_view bytes;  // kBytes; points into the message

  float AsFloat() const {  // of kFixed32
    return std::bit_cast<float>(static_cast<uint32_t>(integer));
  }
};

// Calls `visit` for every field of the message, in order, until it fails.
// InvalidArgument gives the reason if the message is malformed or uses
// (deprecated) groups.
absl::Status ForEachField(
    absl::string_view message,
    absl::FunctionRef<absl::Status(const WireField&)> visit);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_PROTOBUF_WIRE_H_
