// The verifier as a service: options, flags, start.
#ifndef FORETOKEN_SERVICES_VERIFIER_CONFIG_H_
#define FORETOKEN_SERVICES_VERIFIER_CONFIG_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/config/flags.h"
#include "common/infer/factory/backend_factory.h"
#include "common/metrics/registry.h"
#include "common/rpc/run_service.h"
#include "services/verifier/core/verify_engine.h"
#include "services/verifier/server.h"

namespace foretoken::verifier {

struct VerifierService {
  static constexpr rpc::ServiceInfo kInfo = {
      "foretoken-verifier",
      "Runs the target model: verifies token trees in batches.", 50051, 9101};

  BackendOptions backend;
  VerifyEngineOptions engine;
  VerifierServerOptions server;  // without a name: the model's own
  bool draft_guard = true;  // else engine.guard is kWide

  void AddFlags(Flags& flags);
  // Loads the model and starts the engine. `registry` must outlive the server.
  absl::StatusOr<std::unique_ptr<VerifierServer>> Make(
      metrics::Registry& registry) const;
};

}  // namespace foretoken::verifier

#endif  // FORETOKEN_SERVICES_VERIFIER_CONFIG_H_
