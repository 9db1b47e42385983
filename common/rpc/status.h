// Conversion between absl::Status and gRPC's status, in this one place.
//
// Codes have the same numbers on both sides. A retry hint travels as
// google.rpc.RetryInfo in the status details and, inside the process, as a
// payload of the absl::Status.
// Thread-safe.
#ifndef FORETOKEN_COMMON_RPC_STATUS_H_
#define FORETOKEN_COMMON_RPC_STATUS_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/support/status.h"

namespace foretoken::rpc {

grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

// Adds a hint to retry after `delay` (at least 1 ms).
absl::Status WithRetryAfter(absl::Status status, absl::Duration delay);
std::optional<absl::Duration> RetryAfter(const absl::Status& status);

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_STATUS_H_
