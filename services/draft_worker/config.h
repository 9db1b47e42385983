// The draft worker as a service: options, flags, start.
#ifndef FORETOKEN_SERVICES_DRAFT_WORKER_CONFIG_H_
#define FORETOKEN_SERVICES_DRAFT_WORKER_CONFIG_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/config/flags.h"
#include "common/infer/factory/backend_factory.h"
#include "common/infer/factory/draft_loading.h"
#include "common/metrics/registry.h"
#include "common/rpc/run_service.h"
#include "services/draft_worker/server.h"

namespace foretoken::draft_worker {

struct DraftWorkerService {
  static constexpr rpc::ServiceInfo kInfo = {
      "foretoken-draft-worker",
      "Runs the draft model: chains, and phrase-level drafting.", 50052, 9102};

  DraftWorkerService();

  BackendOptions backend;
  DraftLoading loading;
  // A prior whose commonest tokens the LM head computes (foretoken prior
  // build); empty: the vocabulary's first ids.
  std::string prior;
  DraftEngineOptions engine;
  DraftServerOptions server;

  void AddFlags(Flags& flags);
  // Loads the model and starts the engine. `registry` must outlive the server.
  absl::StatusOr<std::unique_ptr<DraftWorkerServer>> Make(
      metrics::Registry& registry) const;
};

}  // namespace foretoken::draft_worker

#endif  // FORETOKEN_SERVICES_DRAFT_WORKER_CONFIG_H_
