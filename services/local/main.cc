// foretoken-local: wiring only.
#include "common/base/log.h"
#include "common/config/flags.h"
#include "common/metrics/registry.h"
#include "common/rpc/server.h"
#include "common/rpc/signals.h"
#include "services/local/stack.h"

int main(int argc, char** argv) {
  using foretoken::ExitWithError;
  foretoken::rpc::CatchSignals();
  const auto config = foretoken::local::StackConfig::Parse(argc, argv);
  if (!config.ok()) return ExitWithError(config.status());
  FORETOKEN_LOG(kInfo, "config ", config->effective);

  foretoken::metrics::Registry registry;
  auto stack = foretoken::local::Stack::Start(*config, registry);
  if (!stack.ok()) return ExitWithError(stack.status());
  auto exposer = foretoken::metrics::Exposer::Start(config->metrics, registry);
  if (!exposer.ok()) return ExitWithError(exposer.status());
  return foretoken::rpc::ServeUntilSignal((*stack)->server(),
                                          config->rpc.drain_timeout);
}
