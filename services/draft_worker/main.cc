// foretoken-draft-worker: wiring only.
#include "common/base/log.h"
#include "common/config/flags.h"
#include "common/metrics/registry.h"
#include "common/rpc/server.h"
#include "common/rpc/signals.h"
#include "services/draft_worker/config.h"

int main(int argc, char** argv) {
  using foretoken::ExitWithError;
  foretoken::rpc::CatchSignals();
  const auto config =
      foretoken::draft_worker::DraftWorkerConfig::Parse(argc, argv);
  if (!config.ok()) return ExitWithError(config.status());
  FORETOKEN_LOG(kInfo, "config ", config->effective);

  foretoken::metrics::Registry registry;
  auto worker =
      foretoken::draft_worker::MakeDraftWorkerServer(config->parts, registry);
  if (!worker.ok()) return ExitWithError(worker.status());
  auto exposer = foretoken::metrics::Exposer::Start(config->metrics, registry);
  if (!exposer.ok()) return ExitWithError(exposer.status());
  auto server = foretoken::rpc::Server::Start(config->rpc, {worker->get()});
  if (!server.ok()) return ExitWithError(server.status());
  return foretoken::rpc::ServeUntilSignal(**server, config->rpc.drain_timeout);
}
