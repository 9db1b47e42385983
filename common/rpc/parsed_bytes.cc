#include "common/rpc/parsed_bytes.h"

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/support/proto_buffer_reader.h"

namespace foretoken::rpc {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::internal::WireFormatLite;
using ::google::protobuf::io::CodedInputStream;

// A field of its own: an element of a list that doubles as it grows, or an
// unknown field. Strings and messages also have an object each.
constexpr int64_t kScalarBytes = 48;
constexpr int64_t kObjectBytes = 128;
// A list that doubles holds three times its length while it is copied.
constexpr int64_t kListFactor = 3;
constexpr int kMaxDepth = 16;

int64_t Fields(const Descriptor* type, CodedInputStream& input, int depth);

// A length-delimited field of `length` bytes, which are read.
int64_t Delimited(const FieldDescriptor* field, uint32_t length,
                  CodedInputStream& input, int depth) {
  if (field != nullptr &&
      field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
      depth < kMaxDepth) {
    const auto limit = input.PushLimit(static_cast<int>(length));
    const int64_t inner = Fields(field->message_type(), input, depth + 1);
    if (input.BytesUntilLimit() > 0) input.Skip(input.BytesUntilLimit());
    input.PopLimit(limit);
    const int64_t own = field->message_type()->field_count() * kScalarBytes;
    return kObjectBytes + own + inner;
  }
  input.Skip(static_cast<int>(length));
  int64_t factor = 1;  // texts, and unknown fields
  if (field != nullptr && field->is_packable()) {
    // A packed number is at least one byte on the wire.
    const bool small = field->cpp_type() == FieldDescriptor::CPPTYPE_INT32 ||
                       field->cpp_type() == FieldDescriptor::CPPTYPE_UINT32;
    factor = kListFactor * (small ? sizeof(int32_t) : sizeof(int64_t));
  }
  return kObjectBytes + factor * length;
}

int64_t Fields(const Descriptor* type, CodedInputStream& input, int depth) {
  int64_t bytes = 0;
  while (const uint32_t tag = input.ReadTag()) {
    uint64_t ignored = 0;
    uint32_t length = 0;
    bool read = true;
    switch (WireFormatLite::GetTagWireType(tag)) {
      case WireFormatLite::WIRETYPE_VARINT:
        read = input.ReadVarint64(&ignored);
        break;
      case WireFormatLite::WIRETYPE_FIXED64:
        read = input.Skip(8);
        break;
      case WireFormatLite::WIRETYPE_FIXED32:
        read = input.Skip(4);
        break;
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED: {
        // (A length beyond INT_MAX is malformed.)
        read = input.ReadVarint32(&length) && length <= (1u << 31) - 1;
        const FieldDescriptor* field =
            type->FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
        if (read) bytes += Delimited(field, length, input, depth);
        break;
      }
      default:  // groups, which are unknown fields and may nest
        bytes += kObjectBytes;
    }
    if (!read) break;
    bytes += kScalarBytes;
  }
  return bytes;
}

}  // namespace

int64_t ParsedBytes(const Descriptor& type, const grpc::ByteBuffer& message) {
  // (The reader does not change the buffer; its type is not const.)
  grpc::ByteBuffer copy(message);  // another reference to the same bytes
  grpc::ProtoBufferReader reader(&copy);
  if (!reader.status().ok()) return 0;
  CodedInputStream input(&reader);
  return sizeof(int64_t) * 64 + Fields(&type, input, 0);
}

}  // namespace foretoken::rpc
