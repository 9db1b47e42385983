// foretoken-trie-drafter: wiring only.
#include "common/base/log.h"
#include "common/config/flags.h"
#include "common/metrics/registry.h"
#include "common/rpc/server.h"
#include "common/rpc/signals.h"
#include "services/trie_drafter/config.h"

int main(int argc, char** argv) {
  using foretoken::ExitWithError;
  foretoken::rpc::CatchSignals();
  const auto config =
      foretoken::trie_drafter::TrieDrafterConfig::Parse(argc, argv);
  if (!config.ok()) return ExitWithError(config.status());
  FORETOKEN_LOG(kInfo, "config ", config->effective);

  foretoken::metrics::Registry registry;
  auto drafter =
      foretoken::trie_drafter::MakeTrieDrafterServer(config->parts, registry);
  if (!drafter.ok()) return ExitWithError(drafter.status());
  auto exposer = foretoken::metrics::Exposer::Start(config->metrics, registry);
  if (!exposer.ok()) return ExitWithError(exposer.status());
  auto server = foretoken::rpc::Server::Start(config->rpc, {drafter->get()});
  if (!server.ok()) return ExitWithError(server.status());
  return foretoken::rpc::ServeUntilSignal(**server, config->rpc.drain_timeout);
}
