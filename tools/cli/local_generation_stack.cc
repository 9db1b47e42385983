// LocalGeneration over all services.
#include <utility>

#include "common/base/status_macros.h"
#include "common/metrics/registry.h"
#include "services/local/stack.h"
#include "tools/cli/local_generation.h"

namespace foretoken::cli {
namespace {

class StackGeneration final : public LocalGeneration {
 public:
  absl::Status Start(const local::LocalService& service) {
    FORETOKEN_ASSIGN_OR_RETURN(stack_, service.Make(registry_));
    return absl::OkStatus();
  }
  orchestrator::GenerationService& service() override {
    return stack_->generation();
  }

 private:
  metrics::Registry registry_;
  std::unique_ptr<local::Stack> stack_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LocalGeneration>> StartLocalGeneration(
    const GenerateFlags& flags, int64_t, std::shared_ptr<const Tokenizer>) {
  local::LocalService config;
  BackendOptions& backend = config.verifier.backend;
  backend.model = flags.model;
  backend.backend = flags.backend;
  backend.device = flags.device;
  backend.precision = flags.precision;
  backend.threads = flags.threads;
  backend.max_sessions = 1;
  config.draft_model = flags.draft_model;
  config.prior = flags.prior;
  config.crest = flags.crest;
  config.orchestrator.trace = flags.trace;
  auto generation = std::make_unique<StackGeneration>();
  FORETOKEN_RETURN_IF_ERROR(generation->Start(config));
  return generation;
}

}  // namespace foretoken::cli
