#include "common/text/protobuf_wire.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/bytes.h"
#include "common/base/status_macros.h"

namespace foretoken {
namespace {

class WireReader {
 public:
  explicit WireReader(absl::string_view message) : rest_(message) {}

  bool done() const { return rest_.empty(); }

  absl::StatusOr<WireField> Next() {
    FORETOKEN_ASSIGN_OR_RETURN(const uint64_t key, Varint());
    // Field numbers have 29 bits; 0 is reserved.
    if (key >> 3 == 0 || key >> 3 > 0x1FFFFFFF) {
      return absl::InvalidArgumentError(
          absl::StrCat("field number ", key >> 3, " does not exist"));
    }
    WireField field;
    field.number = static_cast<uint32_t>(key >> 3);
    field.type = static_cast<WireField::Type>(key & 7);
    switch (field.type) {
      case WireField::kVarint: {
        FORETOKEN_ASSIGN_OR_RETURN(field.integer, Varint());
        return field;
      }
      case WireField::kFixed64:
      case WireField::kFixed32: {
        FORETOKEN_ASSIGN_OR_RETURN(
            field.bytes, Take(field.type == WireField::kFixed64 ? 8 : 4));
        field.integer = FromLittleEndian(AsBytes(field.bytes));
        return field;
      }
      case WireField::kBytes: {
        FORETOKEN_ASSIGN_OR_RETURN(const uint64_t length, Varint());
        FORETOKEN_ASSIGN_OR_RETURN(field.bytes, Take(length));
        return field;
      }
    }
    // Groups (3 and 4) are deprecated, and no model file has them.
    return absl::InvalidArgumentError(
        absl::StrCat("field ", field.number, " has wire type ", key & 7));
  }

 private:
  absl::StatusOr<absl::string_view> Take(uint64_t length) {
    if (length > rest_.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("truncated message: want ", length, " bytes, ",
                       rest_.size(), " are left"));
    }
    const absl::string_view bytes = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return bytes;
  }

  absl::StatusOr<uint64_t> Varint() {
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

  absl::string_view rest_;
};

}  // namespace

absl::Status ForEachField(
    absl::string_view message,
    absl::FunctionRef<absl::Status(const WireField&)> visit) {
  WireReader reader(message);
  while (!reader.done()) {
    FORETOKEN_ASSIGN_OR_RETURN(const WireField field, reader.Next());
    FORETOKEN_RETURN_IF_ERROR(visit(field));
  }
  return absl::OkStatus();
}

}  // namespace foretoken
