// foretoken-verifier: wiring only.
#include "common/base/log.h"
#include "common/config/flags.h"
#include "common/metrics/registry.h"
#include "common/rpc/server.h"
#include "common/rpc/signals.h"
#include "services/verifier/config.h"

int main(int argc, char** argv) {
  using foretoken::ExitWithError;
  foretoken::rpc::CatchSignals();
  const auto config = foretoken::verifier::VerifierConfig::Parse(argc, argv);
  if (!config.ok()) return ExitWithError(config.status());
  FORETOKEN_LOG(kInfo, "config ", config->effective);

  foretoken::metrics::Registry registry;
  auto verifier = foretoken::verifier::MakeVerifierServer(
      config->backend, config->engine, config->server, registry);
  if (!verifier.ok()) return ExitWithError(verifier.status());
  auto exposer = foretoken::metrics::Exposer::Start(config->metrics, registry);
  if (!exposer.ok()) return ExitWithError(exposer.status());
  auto server = foretoken::rpc::Server::Start(config->rpc, {verifier->get()});
  if (!server.ok()) return ExitWithError(server.status());
  return foretoken::rpc::ServeUntilSignal(**server, config->rpc.drain_timeout);
}
