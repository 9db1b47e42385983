// ParsedBytes: the memory that a message takes once it is parsed, known before.
//
// A few bytes on the wire can become many: an empty string of a repeated field
// is 2 bytes there and about 50 afterwards.
#ifndef FORETOKEN_COMMON_RPC_PARSED_BYTES_H_
#define FORETOKEN_COMMON_RPC_PARSED_BYTES_H_

#include <cstdint>

#include "google/protobuf/descriptor.h"
#include "grpcpp/support/byte_buffer.h"

namespace foretoken::rpc {

// An upper bound, growing buffers included. A message that is malformed from
// some byte on counts up to there; it is not parsed further either.
int64_t ParsedBytes(const google::protobuf::Descriptor& type,
                    const grpc::ByteBuffer& message);

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_PARSED_BYTES_H_
