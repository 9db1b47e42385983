#include "services/local/stack.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/grammar/grammar_cache.h"
#include "common/text/model_tokenizer.h"
#include "services/local/local_verifier.h"

namespace foretoken::local {

void LocalService::AddFlags(Flags& flags) {
  verifier.AddFlags(flags);
  orchestrator::AddRequestFlags(flags, &orchestrator);
  flags.String("draft-model", &draft_model,
               "Directory of a draft model with the same vocabulary");
  draft_loading.AddFlags(flags);
  flags.String("prior", &prior,
               "Prior of the trie drafter (foretoken prior build); needs the "
               "model's tokenizer");
  trie_drafter::AddScopePriorFlags(flags, &scope_prior);
  flags.Url("redis-url", &redis_url,
            "Warm start of the trie drafter: redis://HOST[:PORT][/N] or "
            "unix:///PATH; empty for none");
  flags.String("crest", &crest,
               "Snapshot of a CREST datastore (foretoken crest build)");
  gateway.AddFlags(flags, "http-");
}

namespace {

// The one datastore of the process.
constexpr char kDatastore[] = "local";
constexpr char kHere[] = "in-process";

// The draft model's tokens must be the target's token ids.
absl::Status CheckDraftTokenizer(const LocalService& config,
                                 const Tokenizer* target,
                                 const Tokenizer* draft) {
  if (target == nullptr || draft == nullptr ||
      draft->fingerprint() == target->fingerprint()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("--draft-model: the tokenizer of ", config.draft_model,
                   " is not that of ", config.verifier.backend.model));
}

}  // namespace

absl::Status Stack::StartDrafters(
    const LocalService& config, const Tokenizer* tokenizer,
    metrics::Registry& registry, orchestrator::DraftServicesOptions* drafters) {
  // The tokenizer's path is the model's directory; empty without a tokenizer.
  const std::string& text =
      tokenizer == nullptr ? "" : config.verifier.backend.model;
  trie_drafter::TrieDrafterService trie;
  trie.tokenizer = text;
  trie.prior = config.prior;
  trie.core.scopes.prior = config.scope_prior;
  trie.redis_url = config.redis_url;
  if (!config.prior.empty() && tokenizer == nullptr) {
    return absl::FailedPreconditionError("--prior: the model has no tokenizer");
  }
  if (config.scope_prior.max_tokens > 0 && tokenizer == nullptr) {
    return absl::FailedPreconditionError(
        "--scope-prior-tokens: the model has no tokenizer");
  }
  FORETOKEN_ASSIGN_OR_RETURN(trie_drafter_, trie.Make(registry));
  if (!config.crest.empty()) {
    crest::CrestService crest;
    crest.datastores = {absl::StrCat(kDatastore, "=", config.crest)};
    crest.tokenizer = text;
    FORETOKEN_ASSIGN_OR_RETURN(crest_, crest.Make(registry));
  }
  if (!config.draft_model.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(const auto draft_tokenizer,
                               LoadModelTokenizer(config.draft_model));
    FORETOKEN_RETURN_IF_ERROR(
        CheckDraftTokenizer(config, tokenizer, draft_tokenizer.get()));
    const BackendOptions& target = config.verifier.backend;
    draft_worker::DraftWorkerService worker;
    worker.loading = config.draft_loading;
    if (draft_tokenizer != nullptr) worker.prior = config.prior;
    worker.backend.model = config.draft_model;
    worker.backend.backend = target.backend;
    worker.backend.device = target.device;
    worker.backend.precision = target.precision;
    worker.backend.isa = target.isa;
    worker.backend.kv_type = target.kv_type;
    worker.backend.threads = target.threads;
    worker.server.loop.turns = turns_;
    // Beside a target, a text is read in short passes.
    worker.engine.max_text_rows = worker.engine.prefill_chunk;
    FORETOKEN_ASSIGN_OR_RETURN(draft_worker_, worker.Make(registry));
  }
  // (Owned by the servers.)
  const auto here = [](DraftSessions& sessions) {
    return std::shared_ptr<DraftSessions>(std::shared_ptr<void>(), &sessions);
  };
  const std::shared_ptr<SharedPhrases> phrases(std::shared_ptr<void>(),
                                               &trie_drafter_->sessions());
  drafters->services["trie_drafter"][kHere] = {here(trie_drafter_->drafts()),
                                               phrases, nullptr};
  if (draft_worker_ != nullptr) {
    drafters->services["draft_worker"][kHere] = {here(draft_worker_->drafts()),
                                                 nullptr, nullptr};
  }
  if (crest_ != nullptr) {
    drafters->services["crest"][kHere] = {here(crest_->drafts()), nullptr,
                                          nullptr};
    drafters->crest_datastore = kDatastore;
  }
  return absl::OkStatus();
}

absl::Status Stack::StartGateway(const LocalService& config, bool has_tokenizer,
                                 metrics::Registry& registry) {
  if (config.gateway.http.listen.empty()) return absl::OkStatus();
  gateway::GatewayServerOptions options = config.gateway;
  if (has_tokenizer) options.model = config.verifier.backend.model;
  options.limits_callers = true;
  options.gateway.max_request_time = config.orchestrator.max_request_time;
  // (Owned by the orchestrator.)
  const std::shared_ptr<Generator> here(std::shared_ptr<void>(), &generation());
  FORETOKEN_ASSIGN_OR_RETURN(
      gateway_, gateway::GatewayServer::Start(options, here, registry));
  FORETOKEN_LOG(kInfo, "HTTP on ", absl::StrJoin(gateway_->addresses(), ", "));
  return absl::OkStatus();
}

Stack::~Stack() {
  if (gateway_ != nullptr) gateway_->Stop();
}

void Stack::BeginDrain() {
  if (gateway_ != nullptr) gateway_->BeginDrain();
  orchestrator_->BeginDrain();
}

bool Stack::Idle() const {
  return orchestrator_->Idle() && (gateway_ == nullptr || gateway_->Idle());
}

absl::StatusOr<std::unique_ptr<Stack>> LocalService::Make(
    metrics::Registry& registry) const {
  std::unique_ptr<Stack> stack(new Stack());
  // First, so that all services find it loaded.
  FORETOKEN_ASSIGN_OR_RETURN(std::shared_ptr<const Tokenizer> tokenizer,
                             LoadModelTokenizer(verifier.backend.model));
  verifier::VerifierService target = verifier;
  // Both models run on the same processors.
  if (!draft_model.empty()) stack->turns_ = std::make_shared<PassTurns>();
  target.server.sessions.loop.turns = stack->turns_;
  // The orchestrator compiles a constraint, and the verifier finds it.
  const auto grammars = std::make_shared<grammar::GrammarCache>(
      verifier.server.sessions.constraints.grammars);
  target.server.sessions.constraints.cache = grammars;
  FORETOKEN_ASSIGN_OR_RETURN(stack->verifier_, target.Make(registry));
  std::vector<orchestrator::VerifierEndpoint> endpoints;
  endpoints.push_back(
      {kHere, std::make_shared<LocalVerifier>(*stack->verifier_)});
  orchestrator::OrchestratorServerOptions options = orchestrator;
  options.model_name = verifier.server.model_name;
  options.max_tree_nodes = verifier.server.sessions.max_tree_nodes;
  options.retry_after = verifier.server.streams.retry_after;
  options.grammars = grammars->options();
  options.grammar_cache = grammars;
  FORETOKEN_RETURN_IF_ERROR(stack->StartDrafters(*this, tokenizer.get(),
                                                 registry, &options.drafters));
  FORETOKEN_ASSIGN_OR_RETURN(
      stack->orchestrator_,
      orchestrator::OrchestratorServer::Create(
          options,
          std::make_unique<orchestrator::VerifierPool>(
              orchestrator::VerifierPoolOptions(), std::move(endpoints)),
          tokenizer, registry));
  FORETOKEN_RETURN_IF_ERROR(
      stack->StartGateway(*this, tokenizer != nullptr, registry));
  return stack;
}

}  // namespace foretoken::local
