// StartLocalGenerator with all services.
#include <utility>

#include "common/base/status_macros.h"
#include "common/metrics/registry.h"
#include "services/local/stack.h"
#include "tools/cli/local_generator.h"

namespace foretoken::cli {
namespace {

struct StackOfServices {
  metrics::Registry registry;
  std::unique_ptr<local::Stack> stack;
};

}  // namespace

absl::StatusOr<std::shared_ptr<Generator>> StartLocalGenerator(
    const LocalModelFlags& flags, int64_t, int32_t at_once,
    std::shared_ptr<const Tokenizer>) {
  local::LocalService config;
  config.verifier.backend = flags.backend;
  config.verifier.backend.max_sessions = at_once;
  config.draft_model = flags.draft_model;
  config.draft_loading = flags.draft_loading;
  config.prior = flags.prior;
  config.crest = flags.crest;
  config.orchestrator.trace = flags.trace;
  const auto services = std::make_shared<StackOfServices>();
  FORETOKEN_ASSIGN_OR_RETURN(services->stack, config.Make(services->registry));
  // Aliasing: whoever holds the generator keeps the registry and the whole
  // stack.
  return std::shared_ptr<Generator>(services, &services->stack->generation());
}

}  // namespace foretoken::cli
