#include "services/local/stack.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/grammar/grammar_cache.h"
#include "common/infer/model_path.h"
#include "common/speculation/modes.h"
#include "common/text/model_tokenizer.h"
#include "services/local/local_verifier.h"

namespace foretoken::local {

void LocalService::AddFlags(Flags& flags) {
  verifier.AddFlags(flags);
  orchestrator::AddRequestFlags(flags, &orchestrator);
  flags.String("draft-model", &draft_model,
               "Draft model with the same vocabulary: a Hugging Face directory "
               "or a GGUF file");
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
  flags.Require("mode", [this]() -> std::string {
    const auto mode = Mode::Parse(orchestrator.default_mode);
    // The orchestrator's rule reports one that is none.
    // One bad mode, one message.
    if (!mode.ok()) return "";
    return std::string(
        CheckModeHasSource(*mode, !draft_model.empty(), !crest.empty())
            .message());
  });
}

gateway::GatewayServerOptions LocalService::GatewayOptions(
    bool has_tokenizer) const {
  gateway::GatewayServerOptions options = gateway;
  if (has_tokenizer) options.model = verifier.backend.model;
  // The process is its own orchestrator: limits in the key file are enforced
  // here, and so allowed.
  options.limits_callers = true;
  options.gateway.max_request_time = orchestrator.max_request_time;
  return options;
}

namespace {

// The one datastore of the process.
constexpr char kDatastore[] = "local";
constexpr char kHere[] = "in-process";

// The draft model's tokens must be the target's token ids.
absl::Status CheckDraftTokenizer(const LocalService& config,
                                 const Tokenizer* target,
                                 const Tokenizer* draft) {
  // Without a tokenizer (random weights) nothing can be compared; the
  // vocabulary sizes are checked when the models load.
  if (target == nullptr || draft == nullptr ||
      draft->fingerprint() == target->fingerprint()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("--draft-model: the tokenizer of ", config.draft_model,
                   " is not that of ", config.verifier.backend.model));
}

}  // namespace

absl::Status LocalService::CheckFiles(const Tokenizer* tokenizer) const {
  if (!prior.empty() && tokenizer == nullptr) {
    return absl::FailedPreconditionError("--prior: the model has no tokenizer");
  }
  if (scope_prior.max_tokens > 0 && tokenizer == nullptr) {
    return absl::FailedPreconditionError(
        "--scope-prior-tokens: the model has no tokenizer");
  }
  if (!draft_model.empty()) {
    FORETOKEN_RETURN_IF_ERROR(CheckModel(draft_model));
    // The tokenizer is read again when the draft model starts; here only files
    // are checked, before minutes go into loading the target.
    FORETOKEN_ASSIGN_OR_RETURN(const auto draft_tokenizer,
                               LoadModelTokenizer(draft_model));
    FORETOKEN_RETURN_IF_ERROR(
        CheckDraftTokenizer(*this, tokenizer, draft_tokenizer.get()));
  }
  if (gateway.http.listen.empty()) return absl::OkStatus();
  return GatewayOptions(tokenizer != nullptr).CheckFiles();
}

absl::Status Stack::StartDrafters(const LocalService& config,
                                  const Tokenizer* tokenizer,
                                  metrics::Registry& registry) {
  // The tokenizer's path is the model's directory; empty without a tokenizer.
  const std::string& text =
      tokenizer == nullptr ? "" : config.verifier.backend.model;
  trie_drafter::TrieDrafterService trie;
  trie.tokenizer = text;
  trie.prior = config.prior;
  trie.core.scopes.prior = config.scope_prior;
  trie.redis_url = config.redis_url;
  FORETOKEN_ASSIGN_OR_RETURN(trie_drafter_, trie.Make(registry));
  if (config.crest.empty()) return absl::OkStatus();
  crest::CrestService crest;
  crest.datastores = {absl::StrCat(kDatastore, "=", config.crest)};
  crest.tokenizer = text;
  FORETOKEN_ASSIGN_OR_RETURN(crest_, crest.Make(registry));
  return absl::OkStatus();
}

absl::Status Stack::StartDraftModel(const LocalService& config,
                                    metrics::Registry& registry) {
  if (config.draft_model.empty()) return absl::OkStatus();
  FORETOKEN_ASSIGN_OR_RETURN(const auto draft_tokenizer,
                             LoadModelTokenizer(config.draft_model));
  const BackendOptions& target = config.verifier.backend;
  draft_worker::DraftWorkerService worker;
  worker.loading = config.draft_loading;
  // Passed on only if the worker can read it: its head keeps the prior's
  // commonest tokens.
  if (draft_tokenizer != nullptr) worker.prior = config.prior;
  worker.backend.model = config.draft_model;
  worker.backend.backend = target.backend;
  worker.backend.device = target.device;
  worker.backend.precision = target.precision;
  worker.backend.isa = target.isa;
  worker.backend.kv_type = target.kv_type;
  worker.backend.threads = target.threads;
  // The turns let passes of the two models alternate rather than share the
  // processors.
  worker.server.loop.turns = turns_;
  // Beside a target, a text is read in short passes.
  worker.engine.max_text_rows = worker.engine.prefill_chunk;
  FORETOKEN_ASSIGN_OR_RETURN(draft_worker_, worker.Make(registry));
  return absl::OkStatus();
}

void Stack::OfferDrafters(orchestrator::DraftServicesOptions* drafters) {
  // (Owned by the servers.)
  const auto here = [](DraftSessions& sessions) {
    // An aliasing pointer with an empty owner: it points without owning. The
    // servers outlive the orchestrator, which is destroyed first (see the
    // order of the members).
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
}

absl::Status Stack::StartGateway(const gateway::GatewayServerOptions& options,
                                 std::vector<net::ReservedAddress> addresses,
                                 metrics::Registry& registry) {
  if (options.http.listen.empty()) return absl::OkStatus();
  // (Owned by the orchestrator.)
  const std::shared_ptr<Generator> here(std::shared_ptr<void>(), &generation());
  FORETOKEN_ASSIGN_OR_RETURN(
      gateway_, gateway::GatewayServer::Start(options, here, registry,
                                              std::move(addresses)));
  FORETOKEN_LOG(kInfo, "HTTP on ", absl::StrJoin(gateway_->addresses(), ", "));
  return absl::OkStatus();
}

Stack::~Stack() {
  // Before any member is destroyed: HTTP handlers still call the orchestrator.
  if (gateway_ != nullptr) gateway_->Stop();
}

void Stack::BeginDrain() {
  if (gateway_ != nullptr) gateway_->BeginDrain();
  // In this order: a request that the gateway has accepted must still find an
  // orchestrator that takes it.
  orchestrator_->BeginDrain();
}

bool Stack::Idle() const {
  return orchestrator_->Idle() && (gateway_ == nullptr || gateway_->Idle());
}

absl::StatusOr<std::unique_ptr<Stack>> LocalService::Make(
    metrics::Registry& registry) const {
  std::unique_ptr<Stack> stack(new Stack());
  // Everything that can be wrong is looked at before a model is loaded, which
  // may take minutes.
  // The ports are bound now and listened on at the end: a port that is taken
  // must not be found out after the model is loaded.
  FORETOKEN_ASSIGN_OR_RETURN(std::vector<net::ReservedAddress> http_addresses,
                             net::ReserveAddresses(gateway.http.listen));
  if (!verifier.backend.model.empty()) {
    FORETOKEN_RETURN_IF_ERROR(CheckModel(verifier.backend.model));
  }
  // First, so that all services find it loaded.
  FORETOKEN_ASSIGN_OR_RETURN(std::shared_ptr<const Tokenizer> tokenizer,
                             LoadModelTokenizer(verifier.backend.model));
  FORETOKEN_RETURN_IF_ERROR(CheckFiles(tokenizer.get()));
  FORETOKEN_RETURN_IF_ERROR(
      stack->StartDrafters(*this, tokenizer.get(), registry));
  verifier::VerifierService target = verifier;
  // Both models run on the same processors.
  // One queue of turns for both engines, before either is made.
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
  FORETOKEN_RETURN_IF_ERROR(stack->StartDraftModel(*this, registry));
  stack->OfferDrafters(&options.drafters);
  orchestrator::VerifierPoolOptions pool;
  // One process has one numerics; the pool would log a fingerprint that the
  // engine has logged already.
  pool.logs_numerics = false;
  FORETOKEN_ASSIGN_OR_RETURN(stack->orchestrator_,
                             orchestrator::OrchestratorServer::Create(
                                 options,
                                 std::make_unique<orchestrator::VerifierPool>(
                                     pool, std::move(endpoints)),
                                 tokenizer, registry));
  FORETOKEN_RETURN_IF_ERROR(
      stack->StartGateway(GatewayOptions(tokenizer != nullptr),
                          std::move(http_addresses), registry));
  return stack;
}

}  // namespace foretoken::local
