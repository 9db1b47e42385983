// The draft worker's configuration: one struct made of its parts' options.
#ifndef FORETOKEN_SERVICES_DRAFT_WORKER_CONFIG_H_
#define FORETOKEN_SERVICES_DRAFT_WORKER_CONFIG_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/config/flags.h"
#include "common/infer/factory/backend_factory.h"
#include "common/metrics/registry.h"
#include "common/rpc/server.h"
#include "services/draft_worker/server.h"

namespace foretoken::draft_worker {

// What a draft worker is, without listeners.
struct DraftWorkerParts {
  DraftWorkerParts();

  BackendOptions backend;
  DraftEngineOptions engine;
  DraftServerOptions server;
};

struct DraftWorkerConfig {
  rpc::ServerOptions rpc;
  metrics::ExposerOptions metrics;
  DraftWorkerParts parts;
  std::string effective;  // to be logged

  static absl::StatusOr<DraftWorkerConfig> Parse(int argc,
                                                 const char* const* argv);
};

// The flags of `parts`: shared with whoever runs a draft worker inside its own
// process.
void AddDraftWorkerFlags(Flags& flags, DraftWorkerParts* parts);

// Loads the model and starts the engine. `registry` must outlive the server.
absl::StatusOr<std::unique_ptr<DraftWorkerServer>> MakeDraftWorkerServer(
    DraftWorkerParts parts, metrics::Registry& registry);

}  // namespace foretoken::draft_worker

#endif  // FORETOKEN_SERVICES_DRAFT_WORKER_CONFIG_H_
