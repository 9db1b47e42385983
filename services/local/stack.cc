#include "services/local/stack.h"

#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/text/tokenizer.h"

namespace foretoken::local {

absl::StatusOr<StackConfig> StackConfig::Parse(int argc,
                                               const char* const* argv) {
  StackConfig config;
  Flags flags("foretoken-local",
              "All services in one process, joined without sockets.");
  verifier::AddVerifierFlags(flags, &config.backend, &config.engine,
                             &config.verifier);
  orchestrator::AddOrchestratorFlags(flags, &config.orchestrator);
  rpc::AddServerFlags(flags, "127.0.0.1:50050", &config.rpc);
  metrics::AddExposerFlags(flags, "127.0.0.1:9100", &config.metrics);
  FORETOKEN_RETURN_IF_ERROR(flags.Parse(argc, argv));
  config.effective = flags.Effective();
  return config;
}

absl::StatusOr<std::unique_ptr<Stack>> Stack::Start(
    const StackConfig& config, metrics::Registry& registry) {
  std::unique_ptr<Stack> stack(new Stack());
  FORETOKEN_ASSIGN_OR_RETURN(
      stack->verifier_,
      verifier::MakeVerifierServer(config.backend, config.engine,
                                   config.verifier, registry));
  FORETOKEN_ASSIGN_OR_RETURN(
      stack->verifier_server_,
      rpc::Server::Start(rpc::ServerOptions(), {stack->verifier_.get()}));

  std::unique_ptr<Tokenizer> tokenizer;
  if (!config.backend.model.empty()) {
    auto loaded = Tokenizer::Load(config.backend.model);
    // A model without a tokenizer serves token ids.
    if (!loaded.ok() && !absl::IsNotFound(loaded.status())) {
      return loaded.status();
    }
    if (loaded.ok()) tokenizer = *std::move(loaded);
  }
  std::vector<orchestrator::VerifierEndpoint> endpoints;
  endpoints.push_back(
      {"in-process", stack->verifier_server_->InProcessChannel(), ""});
  orchestrator::OrchestratorServerOptions options = config.orchestrator;
  options.model_name = config.verifier.model_name;
  options.max_tree_nodes = config.verifier.max_tree_nodes;
  options.retry_after = config.verifier.retry_after;
  FORETOKEN_ASSIGN_OR_RETURN(
      stack->orchestrator_,
      orchestrator::OrchestratorServer::Create(
          options,
          std::make_unique<orchestrator::VerifierPool>(
              orchestrator::VerifierPoolOptions(), std::move(endpoints)),
          std::move(tokenizer), registry));
  FORETOKEN_ASSIGN_OR_RETURN(
      stack->server_,
      rpc::Server::Start(config.rpc, {stack->orchestrator_.get()}));
  return stack;
}

// From the outside in: callers, then the orchestrator's own calls, then the
// verifier.
Stack::~Stack() {
  server_.reset();
  orchestrator_.reset();
  verifier_server_.reset();
}

}  // namespace foretoken::local
