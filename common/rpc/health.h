// Client of grpc.health.v1, for command lines and start scripts.
#ifndef FORETOKEN_COMMON_RPC_HEALTH_H_
#define FORETOKEN_COMMON_RPC_HEALTH_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"

namespace foretoken::rpc {

// Whether `service`, or the whole server if empty, is serving. False if the
// server reports NOT_SERVING; NotFound for a service that it does not know,
// Unavailable or DeadlineExceeded without an answer.
// Thread-safe; blocks.
absl::StatusOr<bool> IsServing(const std::shared_ptr<grpc::Channel>& channel,
                               const std::string& service, absl::Time deadline);

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_HEALTH_H_
