// Conversion between absl::Status and gRPC's status, in this one place.
//
// Codes have the same numbers on both sides. A retry hint
// (common/base/retry_after.h) travels as google.rpc.RetryInfo in the status
// details, the mark of a service that stops (common/base/stopping.h) as
// google.rpc.ErrorInfo.
// Thread-safe.
#ifndef FORETOKEN_COMMON_RPC_STATUS_H_
#define FORETOKEN_COMMON_RPC_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/deadline_slack.h"
#include "common/base/retry_after.h"
#include "grpcpp/support/status.h"

namespace foretoken::rpc {

grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

// The status of a call as its client should see it. gRPC ends a call with
// CANCELLED, though no client cancelled it, when it reaches a server during its
// shutdown, and when the server sees the deadline pass before the client does:
// the former is StoppingError, and what comes within kDeadlineSlack of the
// deadline is DEADLINE_EXCEEDED, since little could be done in what is left.
// `cancelled`: the client has cancelled the call; `left`: the time until the
// deadline as its status is delivered.
absl::Status StatusOfCall(const grpc::Status& status, bool cancelled,
                          absl::Duration left);

using ::foretoken::RetryAfter;
using ::foretoken::WithRetryAfter;

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_STATUS_H_
