#include "services/local/stack.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/tokenizer.h"
#include "services/local/direct_verify_stream.h"

namespace foretoken::local {

absl::StatusOr<StackConfig> StackConfig::Parse(int argc,
                                               const char* const* argv) {
  StackConfig config;
  Flags flags("foretoken-local",
              "All services in one process, joined without sockets.");
  verifier::AddVerifierFlags(flags, &config.backend, &config.engine,
                             &config.verifier);
  orchestrator::AddOrchestratorFlags(flags, &config.orchestrator);
  flags.String("draft-model", &config.draft_model,
               "Directory of a draft model with the same vocabulary");
  flags.String("prior", &config.prior,
               "Prior of the trie drafter (foretoken prior build); needs the "
               "model's tokenizer");
  flags.String("crest", &config.crest,
               "Snapshot of a CREST datastore (foretoken crest build)");
  rpc::AddServerFlags(flags, "127.0.0.1:50050", &config.rpc);
  metrics::AddExposerFlags(flags, "127.0.0.1:9100", &config.metrics);
  FORETOKEN_RETURN_IF_ERROR(flags.Parse(argc, argv));
  config.effective = flags.Effective();
  return config;
}

namespace {

// The one datastore of the process.
constexpr char kDatastore[] = "local";

// A model without a tokenizer serves token ids: null then.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(
    const std::string& model) {
  std::unique_ptr<Tokenizer> tokenizer;
  if (model.empty()) return tokenizer;
  auto loaded = Tokenizer::Load(model);
  if (absl::IsNotFound(loaded.status())) return tokenizer;
  return loaded;
}

// Its drafts are the target's token ids.
absl::Status CheckDraftTokenizer(const StackConfig& config,
                                 const Tokenizer* target) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> draft,
                             LoadTokenizer(config.draft_model));
  if (target == nullptr || draft == nullptr ||
      draft->fingerprint() == target->fingerprint()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("--draft-model: the tokenizer of ", config.draft_model,
                   " is not that of ", config.backend.model));
}

}  // namespace

absl::Status Stack::StartDrafters(
    const StackConfig& config, const Tokenizer* tokenizer,
    metrics::Registry& registry,
    orchestrator::RemoteServicesOptions* drafters) {
  // What names a tokenizer is found in the model's directory.
  const std::string& text = tokenizer == nullptr ? "" : config.backend.model;
  trie_drafter::TrieDrafterParts trie;
  trie.tokenizer = text;
  trie.prior = config.prior;
  if (!config.prior.empty() && tokenizer == nullptr) {
    return absl::FailedPreconditionError(
        "--prior: the model has no tokenizer that it could belong to");
  }
  FORETOKEN_ASSIGN_OR_RETURN(trie_drafter_, trie_drafter::MakeTrieDrafterServer(
                                                std::move(trie), registry));
  std::vector<rpc::Servable*> servables = {trie_drafter_.get()};
  if (!config.crest.empty()) {
    crest::CrestOptions options;
    options.datastores = {absl::StrCat(kDatastore, "=", config.crest)};
    options.tokenizer = text;
    FORETOKEN_ASSIGN_OR_RETURN(crest_,
                               crest::MakeCrestServer(options, registry));
    servables.push_back(crest_.get());
  }
  if (!config.draft_model.empty()) {
    FORETOKEN_RETURN_IF_ERROR(CheckDraftTokenizer(config, tokenizer));
    draft_worker::DraftWorkerParts parts;
    parts.backend.model = config.draft_model;
    parts.backend.backend = config.backend.backend;
    parts.backend.device = config.backend.device;
    parts.backend.precision = config.backend.precision;
    parts.backend.threads = config.backend.threads;
    FORETOKEN_ASSIGN_OR_RETURN(
        draft_worker_,
        draft_worker::MakeDraftWorkerServer(std::move(parts), registry));
    servables.push_back(draft_worker_.get());
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      drafters_server_, rpc::Server::Start(rpc::ServerOptions(), servables));
  const orchestrator::DraftEndpoint here = {
      drafters_server_->InProcessChannel(), ""};
  drafters->trie_drafter = here;
  drafters->trie_here = orchestrator::DraftServiceHere{
      &trie_drafter_->sessions(), &trie_drafter_->workers(),
      [trie = trie_drafter_.get()](const DraftAnswer& answer) {
        trie->observer().OnAnswer(answer);
      },
      [trie = trie_drafter_.get()](absl::StatusCode code) {
        trie->observer().OnFailed(code);
      }};
  if (draft_worker_ != nullptr) drafters->draft_worker = here;
  if (crest_ != nullptr) {
    drafters->crest = here;
    drafters->crest_datastore = kDatastore;
  }
  return absl::OkStatus();
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

  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer,
                             LoadTokenizer(config.backend.model));
  std::vector<orchestrator::VerifierEndpoint> endpoints;
  endpoints.push_back(
      {"in-process", stack->verifier_server_->InProcessChannel(), "",
       [verifier = stack->verifier_.get()](absl::Time deadline) {
         return DirectVerifyStream::Start(*verifier, deadline);
       }});
  orchestrator::OrchestratorServerOptions options = config.orchestrator;
  options.model_name = config.verifier.model_name;
  options.max_tree_nodes = config.verifier.sessions.max_tree_nodes;
  options.retry_after = config.verifier.retry_after;
  FORETOKEN_RETURN_IF_ERROR(stack->StartDrafters(config, tokenizer.get(),
                                                 registry, &options.drafters));
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
// services that it called.
Stack::~Stack() {
  server_.reset();
  orchestrator_.reset();
  drafters_server_.reset();
  verifier_server_.reset();
}

}  // namespace foretoken::local
