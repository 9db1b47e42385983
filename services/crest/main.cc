// foretoken-crest: wiring only.
#include "common/base/log.h"
#include "common/config/flags.h"
#include "common/metrics/registry.h"
#include "common/rpc/server.h"
#include "common/rpc/signals.h"
#include "services/crest/config.h"

int main(int argc, char** argv) {
  using foretoken::ExitWithError;
  foretoken::rpc::CatchSignals();
  const auto config = foretoken::crest::CrestConfig::Parse(argc, argv);
  if (!config.ok()) return ExitWithError(config.status());
  FORETOKEN_LOG(kInfo, "config ", config->effective);

  foretoken::metrics::Registry registry;
  auto crest = foretoken::crest::MakeCrestServer(config->crest, registry);
  if (!crest.ok()) return ExitWithError(crest.status());
  auto exposer = foretoken::metrics::Exposer::Start(config->metrics, registry);
  if (!exposer.ok()) return ExitWithError(exposer.status());
  auto server = foretoken::rpc::Server::Start(config->rpc, {crest->get()});
  if (!server.ok()) return ExitWithError(server.status());
  return foretoken::rpc::ServeUntilSignal(**server, config->rpc.drain_timeout);
}
