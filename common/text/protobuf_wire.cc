#include "common/text/protobuf_wire.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace foretoken {

float WireField::AsFloat() const {
  const uint32_t bits = static_cast<uint32_t>(integer);
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

absl::StatusOr<uint64_t> WireReader::Varint() {
  uint64_t value = 0;
  // Ten groups of 7 bits; bits beyond the 64th are dropped, as in protobuf.
  for (int shift = 0; shift < 64; shift += 7) {
    if (rest_.empty()) return absl::InvalidArgumentError("truncated message");
    const uint8_t byte = static_cast<uint8_t>(rest_[0]);
    rest_.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  return absl::InvalidArgumentError("integer of more than ten bytes");
}

absl::StatusOr<uint64_t> WireReader::Fixed(size_t length) {
  if (rest_.size() < length) {
    return absl::InvalidArgumentError("truncated message");
  }
  uint64_t value = 0;
  for (size_t i = 0; i < length; ++i) {
    value |= static_cast<uint64_t>(static_cast<uint8_t>(rest_[i])) << (8 * i);
  }
  rest_.remove_prefix(length);
  return value;
}

absl::StatusOr<bool> WireReader::Next(WireField& field) {
  if (rest_.empty()) return false;
  FORETOKEN_ASSIGN_OR_RETURN(const uint64_t key, Varint());
  field = {};
  // Field numbers have 29 bits; 0 is reserved.
  if (key >> 3 == 0 || key >> 3 > 0x1FFFFFFF) {
    return absl::InvalidArgumentError(
        absl::StrCat("field number ", key >> 3, " does not exist"));
  }
  field.number = static_cast<uint32_t>(key >> 3);
  field.type = static_cast<WireField::Type>(key & 7);
  switch (field.type) {
    case WireField::kVarint: {
      FORETOKEN_ASSIGN_OR_RETURN(field.integer, Varint());
      return true;
    }
    case WireField::kFixed64: {
      FORETOKEN_ASSIGN_OR_RETURN(field.integer, Fixed(8));
      return true;
    }
    case WireField::kFixed32: {
      FORETOKEN_ASSIGN_OR_RETURN(field.integer, Fixed(4));
      return true;
    }
    case WireField::kBytes: {
      FORETOKEN_ASSIGN_OR_RETURN(const uint64_t length, Varint());
      if (length > rest_.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("field ", field.number, " has ", length,
                         " bytes, but only ", rest_.size(), " are left"));
      }
      field.bytes = rest_.substr(0, length);
      rest_.remove_prefix(length);
      return true;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("field ", field.number, " has wire type ", key & 7));
}

}  // namespace foretoken
