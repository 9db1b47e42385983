// foretoken-orchestrator: wiring only.
#include "common/base/log.h"
#include "common/config/flags.h"
#include "common/metrics/registry.h"
#include "common/rpc/server.h"
#include "common/rpc/signals.h"
#include "services/orchestrator/config.h"

int main(int argc, char** argv) {
  using foretoken::ExitWithError;
  foretoken::rpc::CatchSignals();
  const auto config =
      foretoken::orchestrator::OrchestratorConfig::Parse(argc, argv);
  if (!config.ok()) return ExitWithError(config.status());
  FORETOKEN_LOG(kInfo, "config ", config->effective);

  foretoken::metrics::Registry registry;
  auto orchestrator =
      foretoken::orchestrator::MakeOrchestratorServer(*config, registry);
  if (!orchestrator.ok()) return ExitWithError(orchestrator.status());
  auto exposer = foretoken::metrics::Exposer::Start(config->metrics, registry);
  if (!exposer.ok()) return ExitWithError(exposer.status());
  auto server =
      foretoken::rpc::Server::Start(config->rpc, {orchestrator->get()});
  if (!server.ok()) return ExitWithError(server.status());
  // Without a verifier this orchestrator is no use to anyone: health says so.
  foretoken::orchestrator::VerifierPool& pool = (*orchestrator)->pool();
  pool.SetHealthListener([&](bool any_up) { (*server)->SetServing(any_up); });
  const int code =
      foretoken::rpc::ServeUntilSignal(**server, config->rpc.drain_timeout);
  pool.SetHealthListener(nullptr);
  return code;
}
