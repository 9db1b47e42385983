#include "services/gateway/config.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/auth.h"
#include "services/gateway/adapters/watched_generator.h"

namespace foretoken::gateway {

absl::StatusOr<GatewayConfig> GatewayConfig::Parse(const std::string& version,
                                                   int argc,
                                                   const char* const* argv) {
  GatewayConfig config;
  config.server.http.listen = {"127.0.0.1:8080"};
  config.metrics.address = "127.0.0.1:9105";
  Flags flags("foretoken-gateway", "Serves OpenAI's API on an orchestrator.");
  flags.Version(version);
  flags.String("orchestrator", &config.orchestrator,
               "Address of the orchestrator; all addresses of a host are used "
               "in turn");
  config.channel.AddFlags(flags, "orchestrator");
  flags.String("model", &config.server.model,
               "The served model's directory or GGUF file, for its tokenizer "
               "and chat template; empty: no chat");
  config.server.AddFlags(flags, "");
  flags.Duration("max-request-time", &config.server.gateway.max_request_time,
                 {absl::Milliseconds(1), absl::Hours(24 * 365)},
                 "Time limit of a request, queueing included");
  config.metrics.AddFlags(flags);
  flags.Duration("drain-timeout", &config.drain_timeout,
                 {absl::ZeroDuration(), absl::Hours(1)},
                 "Time for running requests to finish after SIGTERM");
  GatewayServerOptions& server = config.server;
  flags.Require("listen", [&server]() -> std::string {
    return server.http.listen.empty() ? "want an address" : "";
  });
  FORETOKEN_RETURN_IF_ERROR(flags.Parse(argc, argv));
  config.changes = flags.Changes();
  return config;
}

absl::StatusOr<std::unique_ptr<GatewayServer>> GatewayConfig::Start(
    metrics::Registry& registry) const {
  rpc::ChannelOptions options = channel;
  // Two clients: one whose channel watches the orchestrator's health, so that
  // requests fail fast while it does not serve, and one without, which can
  // still ask it why.
  FORETOKEN_ASSIGN_OR_RETURN(
      auto unwatched, rpc::GenerationClient::Connect(orchestrator, options));
  options.health_service = "foretoken.v1.Generation";
  FORETOKEN_ASSIGN_OR_RETURN(
      auto client, rpc::GenerationClient::Connect(orchestrator, options));
  const bool with_principals = !server.key_file.empty();
  if (with_principals && !channel.token_file.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(const auto keys,
                               rpc::Callers::Load(server.key_file));
    FORETOKEN_ASSIGN_OR_RETURN(const std::string own,
                               rpc::LoadClientToken(channel.token_file));
    // The orchestrator lets this token speak for every caller. A client of the
    // gateway that knew it could name any caller it liked.
    if (keys->Find(absl::StrCat("Bearer ", own)).has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--api-key-file: ", server.key_file,
          ": holds the token of --orchestrator-token-file, which may speak "
          "for everybody"));
    }
  }
  return GatewayServer::Start(
      server,
      std::make_unique<WatchedGenerator>(std::move(client), with_principals,
                                         WatchedGenerator::ModelTimes(),
                                         std::move(unwatched)),
      registry);
}

}  // namespace foretoken::gateway
