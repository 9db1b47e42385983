// Channels to other services; deadline and token of outgoing calls.
#ifndef FORETOKEN_COMMON_RPC_CHANNEL_H_
#define FORETOKEN_COMMON_RPC_CHANNEL_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/config/flags.h"
#include "common/rpc/bearer_token.h"
#include "grpc/support/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/server_context.h"

namespace foretoken::rpc {

// Another service: its channel and the token to send.
struct Endpoint {
  std::shared_ptr<grpc::Channel> channel;
  BearerToken token;
};

struct ChannelOptions {
  bool insecure = false;  // allow a peer beyond this machine without TLS
  // PEM files and tokens are read again when they change.
  std::string tls_ca;    // roots; enables TLS
  std::string tls_cert;  // client certificate and key (mTLS)
  std::string tls_key;
  std::string tls_name;    // server name to expect, if not the address's
  std::string token_file;  // bearer token to send
  int32_t max_message_bytes = 16 << 20;
  // Maximum pause between two attempts to connect.
  absl::Duration max_reconnect_backoff = absl::Seconds(1);
  // gRPC service, "foretoken.v1.Crest", whose health the channel watches: calls
  // fail at once while it does not serve. A server without the health service
  // counts as serving. Empty: none.
  std::string health_service;

  // --<prefix>-insecure, --<prefix>-tls-ca, ...
  void AddFlags(Flags& flags, const std::string& prefix);
};

// Connects lazily and reconnects by itself. InvalidArgument for an address
// beyond this machine without TLS or `insecure`, and for a token that would
// cross such a channel in the clear.
absl::StatusOr<std::shared_ptr<grpc::Channel>> CreateChannel(
    const std::string& address, const ChannelOptions& options);

// Whether the channel may be used; connects it if it is idle. False once the
// peer could not be reached, or its watched health is bad, until it is ready
// again.
bool IsUp(grpc::Channel& channel);

// The bearer token to send; none without a token file.
absl::StatusOr<BearerToken> ReadToken(const ChannelOptions& options);

// Sets deadline (on MonotonicNow) and `authorization`. An infinite deadline
// sets none.
void PrepareCall(grpc::ClientContext& context, absl::Time deadline,
                 const std::string& token);

// Passes on the caller's place in a trace, in version 00 of the header and none
// of the caller's bytes; an invalid or empty header is not sent.
void AddTraceparent(grpc::ClientContext& context,
                    const std::string& traceparent);
// The trace header of a call in version 00, "" if it has no valid one.
std::string TraceparentOf(const grpc::ServerContextBase& context);

// Deadlines of gRPC, whose clock has another origin than MonotonicNow. Each
// converts the time that is left, by the monotonic clock alone: a deadline on
// the wall clock, though it were only taken and given back, ends calls at once
// or too late when that clock is set. No deadline is InfiniteFuture.
absl::Time DeadlineOf(const gpr_timespec& deadline);
gpr_timespec GrpcTime(absl::Time time);

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_CHANNEL_H_
