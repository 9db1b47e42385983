// The verifier's configuration: one struct made of its parts' options.
#ifndef FORETOKEN_SERVICES_VERIFIER_CONFIG_H_
#define FORETOKEN_SERVICES_VERIFIER_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/config/flags.h"
#include "common/infer/factory/backend_factory.h"
#include "common/metrics/registry.h"
#include "common/rpc/server.h"
#include "services/verifier/core/verify_engine.h"
#include "services/verifier/server.h"

namespace foretoken::verifier {

struct VerifierConfig {
  rpc::ServerOptions rpc;
  metrics::ExposerOptions metrics;
  BackendOptions backend;
  VerifyEngineOptions engine;
  VerifierServerOptions server;
  std::string effective;  // to be logged

  static absl::StatusOr<VerifierConfig> Parse(int argc,
                                              const char* const* argv);
};

// The flags of model, engine and sessions, without listeners: shared with
// whoever runs a verifier inside its own process.
void AddVerifierFlags(Flags& flags, BackendOptions* backend,
                      VerifyEngineOptions* engine,
                      VerifierServerOptions* server);

// Loads the model and starts the engine. `registry` must outlive the server.
absl::StatusOr<std::unique_ptr<VerifierServer>> MakeVerifierServer(
    const BackendOptions& backend, VerifyEngineOptions engine,
    VerifierServerOptions server, metrics::Registry& registry);

}  // namespace foretoken::verifier

#endif  // FORETOKEN_SERVICES_VERIFIER_CONFIG_H_
