#include "common/rpc/server.h"

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/process_limits.h"
#include "common/base/status_macros.h"
#include "common/net/address.h"
#include "common/rpc/auth.h"
#include "common/rpc/channel.h"
#include "common/rpc/signals.h"
#include "common/rpc/tls.h"
#include "grpc/compression.h"
#include "grpc/grpc.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/impl/server_builder_option.h"
#include "grpcpp/impl/server_builder_plugin.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"

namespace foretoken::rpc {
namespace {

// Time for handlers to return once a drain has timed out and their calls were
// cancelled.
constexpr absl::Duration kCancelGrace = absl::Seconds(1);
// Margin over the longest call of a service before an aged connection is cut
// off.
constexpr absl::Duration kLongCallGrace = absl::Seconds(2);
// Interval between two looks at whether services are idle; they have no event
// for it.
constexpr absl::Duration kDrainPoll = absl::Milliseconds(10);
// Time between NOT_SERVING and GOAWAY, so that clients that watch health or
// balance over several addresses lose no call.
constexpr absl::Duration kNotice = absl::Milliseconds(300);

// Without TLS, "local" credentials carry plain HTTP/2 like insecure ones, but
// check that the peer is on this machine and can run a token check.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeCredentials(
    const ServerOptions& options, const std::string& address,
    const std::shared_ptr<const Callers>& callers) {
  std::shared_ptr<grpc::ServerCredentials> credentials;
  if (!options.tls_cert.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(credentials, TlsForServer(options.tls_files()));
  } else if (!net::IsLocalAddress(address)) {
    return grpc::InsecureServerCredentials();
  } else {
    credentials = grpc::experimental::LocalServerCredentials(
        net::IsUnixAddress(address) ? UDS : LOCAL_TCP);
  }
  if (callers != nullptr) {
    credentials->SetAuthMetadataProcessor(MakeBearerProcessor(callers));
  }
  return credentials;
}

// gRPC's reflection library registers a plugin for every server of a process
// that links it. This removes it where --reflection is off.
class WithoutReflection final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>*
                         plugins) override {
    plugins->erase(std::remove_if(plugins->begin(), plugins->end(),
                                  [](const auto& plugin) {
                                    return plugin->name() ==
                                           "proto_server_reflection";
                                  }),
                   plugins->end());
  }
};

// gRPC limits the compressed size of a message and inflates without a limit: a
// kilobyte may become a megabyte before its size is checked. A call that
// announces compression is therefore answered UNIMPLEMENTED. Messages may
// arrive before that answer; with the decompression filter disabled they stay
// compressed and do not parse as a request, because the first byte of a gzip
// header is a tag with an unused wire type.
void RefuseCompression(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
}

// Size of the largest request of any service. If one has no limit, the
// connection-wide maximum applies.
int MaxRequestBytes(const ServerOptions& options,
                    const std::vector<Servable*>& servables) {
  int64_t largest = 0;
  for (const Servable* servable : servables) {
    const int64_t bytes = servable->max_request_bytes();
    if (bytes == 0) return options.max_message_bytes;
    largest = std::max(largest, bytes);
  }
  if (largest == 0) return options.max_message_bytes;
  return static_cast<int>(
      std::min<int64_t>(largest, options.max_message_bytes));
}

void SetLimits(const ServerOptions& options,
               const std::vector<Servable*>& servables,
               grpc::ServerBuilder& builder) {
  // gRPC takes milliseconds as int: clamp durations of more than 24 days.
  const auto ms = [](absl::Duration d) {
    return static_cast<int>(std::min<int64_t>(absl::ToInt64Milliseconds(d),
                                              std::numeric_limits<int>::max()));
  };
  builder.SetMaxReceiveMessageSize(MaxRequestBytes(options, servables));
  builder.SetMaxSendMessageSize(options.max_message_bytes);
  RefuseCompression(builder);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             options.max_concurrent_streams);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                             ms(options.keepalive_time));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             ms(options.keepalive_timeout));
  // Minimum interval between a client's pings; a client that pings more often
  // gets a GOAWAY. Half of ours, so that a client with the same settings never
  // does.
  builder.AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      ms(options.keepalive_time) / 2);
  // Room for a token, a principal and tracing headers.
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 16 << 10);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             ms(options.handshake_timeout));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                             ms(options.connection_idle));
  if (options.max_connection_age > absl::ZeroDuration()) {
    // Calls that are allowed to last longer than the grace must not be cut off
    // by it.
    absl::Duration grace = options.max_connection_age_grace;
    for (const Servable* servable : servables) {
      grace = std::max(grace, servable->LongestCall() + kLongCallGrace);
    }
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                               ms(options.max_connection_age));
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, ms(grace));
  }
}

// Bounds the receive buffers of all connections together. Flow control does
// not: a message arrives as a whole before its size is checked.
void LimitReceiveBuffers(const std::vector<Servable*>& servables,
                         grpc::ServerBuilder& builder) {
  int64_t bytes = 0;
  for (const Servable* servable : servables) bytes += servable->receive_bytes();
  if (bytes == 0) return;
  grpc::ResourceQuota quota("receive buffers");
  builder.SetResourceQuota(quota.Resize(static_cast<size_t>(bytes)));
}

}  // namespace

absl::Status ServerOptions::Validate() const {
  FORETOKEN_RETURN_IF_ERROR(ValidateListen());
  if (token_file.empty() || !tls_cert.empty()) return absl::OkStatus();
  for (const std::string& address : listen) {
    if (net::IsLocalAddress(address)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("listen address ", address,
                     " is not loopback and bearer tokens would cross it in "
                     "the clear: want TLS (--tls-cert, --tls-key)"));
  }
  return absl::OkStatus();
}

void ServerOptions::AddFlags(Flags& flags) {
  AddListenFlags(flags, "", "the gRPC server");
  flags.String("auth-token-file", &token_file,
               "File of bearer tokens, one per line; calls without a listed "
               "token are refused");
  flags.Bool("reflection", &reflection, "Serve gRPC reflection");
  flags.Int("max-message-bytes", &max_message_bytes, {1 << 10, 1 << 30},
            "Maximum size of a message");
  flags.Int("max-concurrent-streams", &max_concurrent_streams, {1, 1 << 20},
            "Maximum concurrent calls per connection");
  flags.Duration("handshake-timeout", &handshake_timeout,
                 {absl::Milliseconds(10), absl::Minutes(10)},
                 "Close a new connection that does not complete its handshake "
                 "within this time");
  flags.Duration("connection-idle", &connection_idle,
                 {absl::Milliseconds(10), absl::Hours(24)},
                 "Close a connection that has had no call for this time");
  flags.Duration("max-connection-age", &max_connection_age,
                 {absl::ZeroDuration(), absl::Hours(24 * 365)},
                 "Ask clients to connect anew after this time, give or take a "
                 "tenth; running calls go on; 0 for never");
  flags.Duration("max-connection-age-grace", &max_connection_age_grace,
                 {absl::ZeroDuration(), absl::Hours(24 * 365)},
                 "Time that running calls get then; at least the service's own "
                 "limit of a call");
  flags.Duration("send-timeout", &send_timeout,
                 {absl::Milliseconds(10), absl::Hours(1)},
                 "Close a connection that has taken no data for this time");
  flags.Duration("keepalive-time", &keepalive_time,
                 {absl::Seconds(1), absl::Hours(2)},
                 "Ping a peer that has been silent for this time");
  flags.Duration("keepalive-timeout", &keepalive_timeout,
                 {absl::Seconds(1), absl::Minutes(10)},
                 "Close a connection whose ping is not answered within this "
                 "time");
  flags.Duration("drain-timeout", &drain_timeout,
                 {absl::ZeroDuration(), absl::Hours(1)},
                 "Time for running work to finish after SIGTERM");
  flags.Require("listen", [this] {
    return listen.empty() ? std::string("want an address")
                          : std::string(Validate().message());
  });
}

absl::Status ServerOptions::CheckFiles() const {
  FORETOKEN_RETURN_IF_ERROR(Validate());
  FORETOKEN_RETURN_IF_ERROR(CheckTlsFiles(tls_files()));
  if (token_file.empty()) return absl::OkStatus();
  return Callers::Load(token_file).status();
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const ServerOptions& options, const std::vector<Servable*>& servables) {
  FORETOKEN_RETURN_IF_ERROR(options.Validate());
  FORETOKEN_ASSIGN_OR_RETURN(std::vector<net::ReservedAddress> addresses,
                             net::ReserveAddresses(options.listen));
  return Start(options, std::move(addresses), servables);
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const ServerOptions& options, std::vector<net::ReservedAddress> addresses,
    const std::vector<Servable*>& servables) {
  FORETOKEN_RETURN_IF_ERROR(options.Validate());
  FORETOKEN_RETURN_IF_ERROR(CheckThreadMemory(kServerMebibytes));
  // Replaced by HealthService, which bounds its streams.
  grpc::EnableDefaultHealthCheckService(false);
  if (options.reflection) {
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  }
  grpc::ServerBuilder builder;
  if (!options.reflection) {
    builder.SetOption(std::make_unique<WithoutReflection>());
  }
  SetLimits(options, servables, builder);
  LimitReceiveBuffers(servables, builder);
  std::unique_ptr<Server> server(new Server());
  const net::ConnectionLimits limits = options.connection_limits();
  // Connections wait in the backlog until listener_->Start().
  server->listener_ =
      std::make_unique<net::Listener>(limits, options.send_timeout);
  server->health_ = std::make_unique<HealthService>(limits.per_peer);
  std::shared_ptr<const Callers>& callers = server->callers_;
  if (!options.token_file.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(callers, Callers::Load(options.token_file));
    for (Servable* servable : servables) servable->SetCallers(callers);
  }
  for (net::ReservedAddress& address : addresses) {
    FORETOKEN_ASSIGN_OR_RETURN(auto credentials,
                               MakeCredentials(options, address.name, callers));
    server->acceptors_.push_back(
        builder.experimental().AddExternalConnectionAcceptor(
            grpc::ServerBuilder::experimental_type::ExternalConnectionType::
                FROM_FD,
            std::move(credentials)));
    FORETOKEN_ASSIGN_OR_RETURN(
        std::string bound,
        server->listener_->Bind(
            std::move(address),
            [acceptor = server->acceptors_.back().get()](int fd) {
              grpc::experimental::ExternalConnectionAcceptor::
                  NewConnectionParameters connection;
              connection.fd = fd;
              acceptor->HandleNewConnection(&connection);
            }));
    server->addresses_.push_back(std::move(bound));
  }
  builder.RegisterService(server->health_.get());
  for (Servable* servable : servables) {
    builder.RegisterService(servable->grpc_service());
  }
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr) {
    return absl::UnavailableError("the gRPC server does not start");
  }
  server->servables_ = servables;
  for (Servable* servable : servables) {
    servable->WatchHealth([raw = server.get()] {
      absl::MutexLock lock(&raw->mu_);
      raw->ReportHealth();
    });
  }
  // The last steps: health must say SERVING before the first connection is
  // accepted.
  server->SetServing(true);
  server->listener_->Start();
  return server;
}

Server::~Server() {
  // Stop the callbacks first: they use this object.
  for (Servable* servable : servables_) servable->WatchHealth(nullptr);
  listener_->Stop();
  if (server_ != nullptr) server_->Shutdown(GrpcTime(MonotonicNow()));
}

std::shared_ptr<grpc::Channel> Server::InProcessChannel() {
  grpc::ChannelArguments arguments;
  // No network lies between: the services' own limits suffice.
  arguments.SetMaxReceiveMessageSize(-1);
  return server_->InProcessChannel(arguments);
}

void Server::SetServing(bool serving) {
  absl::MutexLock lock(&mu_);
  serving_ = serving;
  ReportHealth();
}

void Server::ReportHealth() {
  const bool serving = serving_ && !draining_;
  // The empty name stands for the whole server (grpc.health.v1).
  bool all = serving;
  for (const Servable* servable : servables_) {
    const bool ready = serving && servable->Ready();
    all = all && ready;
    health_->Set(servable->health_name(), ready);
    for (const PartHealth& part : servable->Parts()) {
      health_->Set(part.name, serving && part.serving);
    }
  }
  health_->Set("", all);
}

bool Server::Drain(absl::Duration timeout) {
  const absl::Time deadline = MonotonicNow() + timeout;
  {
    absl::MutexLock lock(&mu_);
    draining_ = true;
  }
  SetServing(false);
  listener_->Stop();
  absl::SleepFor(std::min(kNotice, timeout));
  // Before GOAWAY, so that every stream that ends after it knows that it must
  // linger (stream_server.h).
  for (Servable* servable : servables_) servable->BeginDrain();
  // Shutdown sends GOAWAY at once, and returns when the last call has ended.
  absl::Notification ended;
  // On a thread of its own, since Shutdown blocks while the services drain.
  std::thread shutdown([this, &ended, deadline] {
    server_->Shutdown(GrpcTime(deadline + 2 * kCancelGrace));
    ended.Notify();
  });
  const auto idle = [this] {
    for (const Servable* servable : servables_) {
      if (!servable->Idle()) return false;
    }
    return true;
  };
  while (!idle() && MonotonicNow() < deadline) absl::SleepFor(kDrainPoll);
  const bool clean = idle();
  if (!clean) {
    for (Servable* servable : servables_) servable->EndAll();
  }
  // Last messages may still be in transit. Calls that never end by themselves,
  // such as health watches, are cancelled.
  if (!ended.WaitForNotificationWithTimeout(kCancelGrace)) {
    grpc_server_cancel_all_calls(server_->c_server());
  }
  shutdown.join();
  return clean;
}

int ServeUntilSignal(Server& server, absl::Duration drain_timeout) {
  const int signal_number = WaitForSignal();
  FORETOKEN_LOG(kInfo, "signal ", signal_number, ": draining for at most ",
                absl::FormatDuration(drain_timeout));
  const bool clean = server.Drain(drain_timeout);
  FORETOKEN_LOG(kInfo, clean ? "drained" : "drain timed out: work cancelled");
  return 0;
}

}  // namespace foretoken::rpc
