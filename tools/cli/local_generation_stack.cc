// LocalGeneration over all services.
#include <utility>

#include "common/base/status_macros.h"
#include "common/metrics/registry.h"
#include "services/local/stack.h"
#include "tools/cli/local_generation.h"

namespace foretoken::cli {
namespace {

struct StackGeneration final : LocalGeneration {
  orchestrator::GenerationService& service() override {
    return stack->generation();
  }

  metrics::Registry registry;
  std::unique_ptr<local::Stack> stack;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LocalGeneration>> StartLocalGeneration(
    const LocalModelFlags& flags, int64_t, std::shared_ptr<const Tokenizer>) {
  local::LocalService config;
  config.verifier.backend = flags.backend;
  config.draft_model = flags.draft_model;
  config.draft_loading = flags.draft_loading;
  config.prior = flags.prior;
  config.crest = flags.crest;
  config.orchestrator.trace = flags.trace;
  auto generation = std::make_unique<StackGeneration>();
  FORETOKEN_ASSIGN_OR_RETURN(generation->stack,
                             config.Make(generation->registry));
  return generation;
}

}  // namespace foretoken::cli
