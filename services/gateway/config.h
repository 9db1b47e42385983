// The gateway as a service: options, flags, start.
#ifndef FORETOKEN_SERVICES_GATEWAY_CONFIG_H_
#define FORETOKEN_SERVICES_GATEWAY_CONFIG_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/metrics/registry.h"
#include "common/rpc/channel.h"
#include "services/gateway/server.h"

namespace foretoken::gateway {

struct GatewayConfig {
  std::string orchestrator = "127.0.0.1:50050";
  rpc::ChannelOptions channel;
  GatewayServerOptions server;
  metrics::ExposerOptions metrics;
  absl::Duration drain_timeout = absl::Seconds(30);
  std::string changes;  // flags that differ from their defaults

  // `version`: what --version prints. Errors are those of Flags::Parse.
  static absl::StatusOr<GatewayConfig> Parse(const std::string& version,
                                             int argc, const char* const* argv);

  // Connects to the orchestrator, without waiting for it, and listens.
  // `registry` must outlive the server.
  absl::StatusOr<std::unique_ptr<GatewayServer>> Start(
      metrics::Registry& registry) const;
};

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CONFIG_H_
