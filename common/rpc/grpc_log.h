// gRPC's own messages as lines of our log.
#ifndef FORETOKEN_COMMON_RPC_GRPC_LOG_H_
#define FORETOKEN_COMMON_RPC_GRPC_LOG_H_

namespace foretoken::rpc {

// From now on gRPC's errors are lines of the process's log, escaped and
// throttled (common/base/log_throttle.h): clients can cause them at will.
// GRPC_VERBOSITY still says which there are. Call once, before gRPC is used.
void RedirectGrpcLog();

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_GRPC_LOG_H_
