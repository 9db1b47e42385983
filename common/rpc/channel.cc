#include "common/rpc/channel.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/net/address.h"
#include "common/rpc/tls.h"
#include "common/tracing/trace_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"

namespace foretoken::rpc {
namespace {

constexpr int kConnectTimeoutMs = 5000;

// The header as we write it ourselves, "" for one that is invalid. A later
// version's may end in any bytes, and gRPC aborts the process over metadata
// that it is given with bytes beyond printable ASCII.
std::string Rewritten(absl::string_view traceparent) {
  const auto context = TraceContext::Parse(traceparent);
  return context.has_value() ? context->Header() : "";
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(
    const std::string& address, const ChannelOptions& options) {
  if (!options.tls_ca.empty()) {
    return TlsForClient({options.tls_cert, options.tls_key, options.tls_ca});
  }
  if (!net::IsLocalAddress(address)) {
    if (!options.token_file.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("address ", address,
                       ": a bearer token would cross it in the clear, want a "
                       "TLS CA"));
    }
    if (!options.insecure) {
      return absl::InvalidArgumentError(
          absl::StrCat("address ", address,
                       " is not on this machine: want a TLS CA or insecure"));
    }
  }
  return grpc::InsecureChannelCredentials();
}

}  // namespace

void ChannelOptions::AddFlags(Flags& flags, const std::string& prefix) {
  flags.Bool(prefix + "-insecure", &insecure,
             "Allow a peer beyond this machine without TLS");
  flags.String(prefix + "-tls-ca", &tls_ca,
               "PEM roots of the peer's certificate; enables TLS");
  flags.String(prefix + "-tls-cert", &tls_cert,
               "PEM client certificate (mTLS)");
  flags.String(prefix + "-tls-key", &tls_key, "PEM client key");
  flags.String(prefix + "-tls-name", &tls_name,
               "Expected name in the peer's certificate, if not its address");
  flags.String(prefix + "-token-file", &token_file,
               "File with the bearer token to send");
  flags.Require(prefix + "-tls-cert", [this]() -> std::string {
    if (tls_cert.empty() != tls_key.empty()) {
      return "want certificate and key together";
    }
    if (!tls_cert.empty() && tls_ca.empty()) {
      return "want the CA of the peer with it";
    }
    return "";
  });
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> CreateChannel(
    const std::string& address, const ChannelOptions& options) {
  FORETOKEN_RETURN_IF_ERROR(net::ValidateAddress(address));
  FORETOKEN_ASSIGN_OR_RETURN(const auto credentials,
                             MakeCredentials(address, options));
  const int backoff_ms = static_cast<int>(
      absl::ToInt64Milliseconds(options.max_reconnect_backoff));
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(options.max_message_bytes);
  arguments.SetMaxSendMessageSize(options.max_message_bytes);
  // Inflating has no bound: a compressed answer is an error.
  arguments.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
                   std::min(50, backoff_ms));
  // Despite its name, the time limit of one attempt to connect: long enough for
  // a handshake over a slow link or with a busy peer.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, backoff_ms);
  // Detects a peer that vanished without closing the connection.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 30000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  // gRPC must not retry by itself: a repeated call repeats its output.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // Without shared subchannels, channels do not share a peer's back-off.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  if (!options.tls_name.empty()) {
    arguments.SetSslTargetNameOverride(options.tls_name);
  }
  if (!options.health_service.empty()) {
    // round_robin is the only policy of gRPC that watches health.
    arguments.SetServiceConfigJSON(
        absl::StrCat(R"({"loadBalancingConfig": [{"round_robin": {}}],)",
                     R"( "healthCheckConfig": {"serviceName": ")",
                     options.health_service, R"("}})"));
  }
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

bool IsUp(grpc::Channel& channel) {
  const grpc_connectivity_state state = channel.GetState(true);
  return state != GRPC_CHANNEL_TRANSIENT_FAILURE &&
         state != GRPC_CHANNEL_SHUTDOWN;
}

absl::StatusOr<BearerToken> ReadToken(const ChannelOptions& options) {
  if (options.token_file.empty()) return BearerToken();
  return BearerToken::Load(options.token_file);
}

void PrepareCall(grpc::ClientContext& context, absl::Time deadline,
                 const std::string& token) {
  if (deadline != absl::InfiniteFuture()) {
    context.set_deadline(GrpcTime(deadline));
  }
  if (!token.empty()) {
    context.AddMetadata("authorization", absl::StrCat("Bearer ", token));
  }
}

void AddTraceparent(grpc::ClientContext& context,
                    const std::string& traceparent) {
  const std::string header = Rewritten(traceparent);
  if (!header.empty()) context.AddMetadata(kTraceHeader, header);
}

std::string TraceparentOf(const grpc::ServerContextBase& context) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kTraceHeader);
  if (found == metadata.end()) return "";
  return Rewritten({found->second.data(), found->second.size()});
}

absl::Time DeadlineOf(const gpr_timespec& deadline) {
  const gpr_timespec never = gpr_inf_future(deadline.clock_type);
  if (gpr_time_cmp(deadline, never) == 0) return absl::InfiniteFuture();
  const gpr_timespec left =
      gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  return MonotonicNow() + absl::Seconds(left.tv_sec) +
         absl::Nanoseconds(left.tv_nsec);
}

gpr_timespec GrpcTime(absl::Time time) {
  if (time == absl::InfiniteFuture()) {
    return gpr_inf_future(GPR_CLOCK_MONOTONIC);
  }
  return gpr_time_add(
      gpr_now(GPR_CLOCK_MONOTONIC),
      gpr_time_from_nanos(absl::ToInt64Nanoseconds(time - MonotonicNow()),
                          GPR_TIMESPAN));
}

}  // namespace foretoken::rpc
