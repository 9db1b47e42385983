// The orchestrator's configuration: one struct made of its parts' options.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CONFIG_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CONFIG_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/flags.h"
#include "common/metrics/registry.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "services/orchestrator/server.h"

namespace foretoken::orchestrator {

struct OrchestratorConfig {
  rpc::ServerOptions rpc;
  metrics::ExposerOptions metrics;
  std::vector<std::string> verifiers = {"127.0.0.1:50051"};
  rpc::ChannelOptions verifier_channel;
  // Addresses of drafting services, empty for none, and how to get there.
  std::string trie_drafter;
  std::string draft_worker;
  std::string crest;
  rpc::ChannelOptions drafter_channel;
  VerifierPoolOptions pool;
  std::string tokenizer;
  OrchestratorServerOptions server;
  std::string effective;  // to be logged

  static absl::StatusOr<OrchestratorConfig> Parse(int argc,
                                                  const char* const* argv);
};

// The flags of requests, without listeners and verifiers: shared with whoever
// runs an orchestrator inside its own process.
void AddOrchestratorFlags(Flags& flags, OrchestratorServerOptions* server);

// Connects to the verifiers and loads the tokenizer; does not wait for any
// verifier to answer. `registry` must outlive the server.
absl::StatusOr<std::unique_ptr<OrchestratorServer>> MakeOrchestratorServer(
    const OrchestratorConfig& config, metrics::Registry& registry);

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CONFIG_H_
