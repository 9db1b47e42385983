#include "common/rpc/channel.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/status_macros.h"
#include "common/rpc/address.h"
#include "common/rpc/auth.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"

namespace foretoken::rpc {
namespace {

constexpr uint64_t kMaxPemBytes = uint64_t{1} << 20;
constexpr int kConnectTimeoutMs = 5000;

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(
    const std::string& address, const ChannelOptions& options) {
  if (!options.tls_ca.empty()) {
    grpc::SslCredentialsOptions ssl;
    FORETOKEN_ASSIGN_OR_RETURN(ssl.pem_root_certs,
                               ReadFile(options.tls_ca, kMaxPemBytes));
    if (!options.tls_cert.empty()) {
      FORETOKEN_ASSIGN_OR_RETURN(ssl.pem_cert_chain,
                                 ReadFile(options.tls_cert, kMaxPemBytes));
      FORETOKEN_ASSIGN_OR_RETURN(ssl.pem_private_key,
                                 ReadFile(options.tls_key, kMaxPemBytes));
    }
    return grpc::SslCredentials(ssl);
  }
  if (!IsLocalAddress(address)) {
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

void AddChannelFlags(Flags& flags, const std::string& prefix,
                     ChannelOptions* options) {
  flags.Bool(prefix + "-insecure", &options->insecure,
             "Allow a peer beyond this machine without TLS");
  flags.String(prefix + "-tls-ca", &options->tls_ca,
               "PEM roots of the peer's certificate; switches TLS on");
  flags.String(prefix + "-tls-cert", &options->tls_cert,
               "PEM client certificate (mTLS)");
  flags.String(prefix + "-tls-key", &options->tls_key, "PEM client key");
  flags.String(
      prefix + "-tls-name", &options->tls_name,
      "Name that the peer's certificate must bear, if not its address");
  flags.String(prefix + "-token-file", &options->token_file,
               "File with the bearer token to send");
  flags.Require(prefix + "-tls-cert", [options]() -> std::string {
    if (options->tls_cert.empty() != options->tls_key.empty()) {
      return "want certificate and key together";
    }
    if (!options->tls_cert.empty() && options->tls_ca.empty()) {
      return "want the CA of the peer with it";
    }
    return "";
  });
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> CreateChannel(
    const std::string& address, const ChannelOptions& options) {
  FORETOKEN_RETURN_IF_ERROR(ValidateAddress(address));
  FORETOKEN_ASSIGN_OR_RETURN(const auto credentials,
                             MakeCredentials(address, options));
  const int backoff_ms = static_cast<int>(
      absl::ToInt64Milliseconds(options.max_reconnect_backoff));
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(options.max_message_bytes);
  arguments.SetMaxSendMessageSize(options.max_message_bytes);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
                   std::min(50, backoff_ms));
  // Despite its name the time that one attempt to connect has: handshakes over
  // a slow link, or of a busy peer, must not be cut off.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, backoff_ms);
  // A peer that vanished without a word is noticed.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 30000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  // Replays are ours to decide: output must not be asked for twice.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // Its own connection: the back-off of one peer is not shared by others.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  if (!options.tls_name.empty()) {
    arguments.SetSslTargetNameOverride(options.tls_name);
  }
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

absl::StatusOr<std::string> ReadToken(const ChannelOptions& options) {
  if (options.token_file.empty()) return std::string();
  return LoadClientToken(options.token_file);
}

void PrepareCall(grpc::ClientContext& context, absl::Time deadline,
                 const std::string& token) {
  if (deadline != absl::InfiniteFuture()) {
    context.set_deadline(absl::ToChronoTime(deadline));
  }
  if (!token.empty()) {
    context.AddMetadata("authorization", absl::StrCat("Bearer ", token));
  }
}

absl::Time DeadlineOf(std::chrono::system_clock::time_point deadline) {
  if (deadline == std::chrono::system_clock::time_point::max()) {
    return absl::InfiniteFuture();
  }
  return absl::FromChrono(deadline);
}

}  // namespace foretoken::rpc
