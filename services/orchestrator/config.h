// The orchestrator as a service: options, flags, start.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CONFIG_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CONFIG_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/flags.h"
#include "common/metrics/registry.h"
#include "common/rpc/channel.h"
#include "common/rpc/discovery.h"
#include "common/rpc/run_service.h"
#include "services/orchestrator/server.h"

namespace foretoken::orchestrator {

struct OrchestratorService {
  static constexpr rpc::ServiceInfo kInfo = {
      "foretoken-orchestrator",
      "Serves the public Generation API on top of verifiers.", 50050, 9100};

  // Addresses and dns:/// names (common/rpc/discovery.h), here and below.
  std::vector<std::string> verifiers = {"127.0.0.1:50051"};
  rpc::ChannelOptions verifier_channel;
  // Those of the drafting services by name; missing or empty for a service that
  // is not used.
  std::map<std::string, std::vector<std::string>> drafters;
  rpc::ChannelOptions drafter_channel;
  rpc::DiscoveryOptions discovery;
  VerifierPoolOptions pool;
  std::string tokenizer;
  OrchestratorServerOptions server;

  void AddFlags(Flags& flags);
  // Connects to the verifiers and loads the tokenizer; does not wait for any
  // name to be resolved, or any verifier to answer. `registry` must outlive the
  // server.
  absl::StatusOr<std::unique_ptr<OrchestratorServer>> Make(
      metrics::Registry& registry) const;
};

// The flags of requests: drafting, admission, time limits.
void AddRequestFlags(Flags& flags, OrchestratorServerOptions* server);

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CONFIG_H_
