// Conversion between absl::Status and gRPC's status, in this one place.
//
// Codes have the same numbers on both sides. A retry hint
// (common/base/retry_after.h) travels as google.rpc.RetryInfo in the status
// details.
// Thread-safe.
#ifndef FORETOKEN_COMMON_RPC_STATUS_H_
#define FORETOKEN_COMMON_RPC_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/retry_after.h"
#include "grpcpp/support/status.h"

namespace foretoken::rpc {

grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

using ::foretoken::RetryAfter;
using ::foretoken::WithRetryAfter;

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_STATUS_H_
