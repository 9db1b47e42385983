// The client side of grpc.health.v1: is a server, or one of its services,
// serving? For command lines and start scripts.
#ifndef FORETOKEN_COMMON_RPC_HEALTH_H_
#define FORETOKEN_COMMON_RPC_HEALTH_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"

namespace foretoken::rpc {

// `service` empty asks for the whole server. False where the server answers
// that it is not serving (yet, or any more); NotFound for a service that it
// does not know, Unavailable or DeadlineExceeded without an answer.
// Thread-safe; blocks.
absl::StatusOr<bool> IsServing(const std::shared_ptr<grpc::Channel>& channel,
                               const std::string& service, absl::Time deadline);

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_HEALTH_H_
