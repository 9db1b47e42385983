#include "services/orchestrator/config.h"

#include <optional>
#include <utility>

#include "common/base/status_macros.h"

namespace foretoken::orchestrator {

namespace {

void AddDraftingFlags(Flags& flags, OrchestratorServerOptions* server) {
  flags.String("crest-datastore", &server->drafters.crest_datastore,
               "Datastore of requests that name none");
  DraftWait& wait = server->draft_wait;
  flags.Double("draft-wait-passes", &wait.passes, {0.0, 1000.0},
               "How long drafts are waited for, in passes of the target");
  flags.Duration("draft-wait-floor", &wait.floor,
                 {absl::ZeroDuration(), absl::Minutes(1)},
                 "Drafts are waited for at least so long");
  flags.Duration("draft-wait-cap", &wait.cap,
                 {absl::ZeroDuration(), absl::Minutes(1)},
                 "Drafts are waited for at most so long");
  CircuitBreakerOptions& breaker = server->drafters.breaker;
  flags.Int("breaker-failures", &breaker.failures_in_a_row, {1, 1000},
            "Failures in a row after which a drafting service is left alone");
  flags.Duration("breaker-silence", &breaker.silence,
                 {absl::Milliseconds(1), absl::Hours(1)},
                 "Time without any answer after which late ones are failures");
  flags.Duration("breaker-backoff", &breaker.first_backoff,
                 {absl::Milliseconds(1), absl::Hours(1)},
                 "Time until such a service is tried again; doubles");
  flags.Duration("breaker-max-backoff", &breaker.max_backoff,
                 {absl::Milliseconds(1), absl::Hours(1)}, "Longest such time");
}

absl::StatusOr<std::optional<DraftEndpoint>> Connect(
    const std::string& address, const rpc::ChannelOptions& options) {
  std::optional<DraftEndpoint> endpoint;
  if (address.empty()) return endpoint;
  endpoint.emplace();
  FORETOKEN_ASSIGN_OR_RETURN(endpoint->channel,
                             rpc::CreateChannel(address, options));
  FORETOKEN_ASSIGN_OR_RETURN(endpoint->token, rpc::ReadToken(options));
  return endpoint;
}

}  // namespace

void AddOrchestratorFlags(Flags& flags, OrchestratorServerOptions* server) {
  flags.String(
      "mode", &server->default_mode,
      "Drafting of requests that name none: off, draft_model, "
      "lookahead, ouroboros, ngram_trie, crest, prompt_lookup or auto, "
      "with parameters as in prompt_lookup:max_n=3,tokens=10");
  flags.Bool("trace", &server->trace,
             "Log a line for every round: tree, drafters, times; no text");
  AddDraftingFlags(flags, server);
  flags.Int("max-requests", &server->max_requests, {1, 4096},
            "Requests that run at once");
  flags.Int("max-waiting-requests", &server->max_waiting_requests, {0, 65536},
            "Requests that may wait beside those");
  flags.Int64("max-prompt-bytes", &server->max_prompt_bytes,
              {1, int64_t{1} << 30}, "Longest prompt text");
  flags.Duration("failover-timeout", &server->verifier.failover_timeout,
                 {absl::ZeroDuration(), absl::Hours(1)},
                 "Time to find another verifier for a request with output");
  flags.Duration("connect-timeout", &server->verifier.connect_timeout,
                 {absl::ZeroDuration(), absl::Hours(1)},
                 "Time to find a verifier for a request without output");
}

absl::StatusOr<OrchestratorConfig> OrchestratorConfig::Parse(
    int argc, const char* const* argv) {
  OrchestratorConfig config;
  Flags flags("foretoken-orchestrator",
              "Serves the public Generation API on top of verifiers.");
  flags.List("verifiers", &config.verifiers, "Addresses of verifiers");
  rpc::AddChannelFlags(flags, "verifier", &config.verifier_channel);
  flags.String("trie-drafter", &config.trie_drafter,
               "Address of a trie drafter, empty for none");
  flags.String("draft-worker", &config.draft_worker,
               "Address of a draft worker, empty for none");
  flags.String("crest", &config.crest,
               "Address of a crest service, empty for none");
  rpc::AddChannelFlags(flags, "drafter", &config.drafter_channel);
  flags.Duration("probe-interval", &config.pool.probe_interval,
                 {absl::Milliseconds(10), absl::Minutes(10)},
                 "Time between two looks at a verifier");
  flags.String("tokenizer", &config.tokenizer,
               "Model directory or tokenizer file; empty: token ids alone");
  flags.String("model-name", &config.server.model_name,
               "Name of the model that clients see");
  flags.Int("max-tree-nodes", &config.server.max_tree_nodes, {1, 256},
            "Draft nodes of one tree, at most the verifiers' limit");
  flags.Duration("retry-after", &config.server.retry_after,
                 {absl::Milliseconds(1), absl::Hours(1)},
                 "Hint that comes with RESOURCE_EXHAUSTED");
  AddOrchestratorFlags(flags, &config.server);
  flags.Require("verifiers", [&config]() -> std::string {
    return config.verifiers.empty() ? "want an address" : "";
  });
  rpc::AddServerFlags(flags, "127.0.0.1:50050", &config.rpc);
  metrics::AddExposerFlags(flags, "127.0.0.1:9100", &config.metrics);
  FORETOKEN_RETURN_IF_ERROR(flags.Parse(argc, argv));
  config.effective = flags.Effective();
  return config;
}

absl::StatusOr<std::unique_ptr<OrchestratorServer>> MakeOrchestratorServer(
    const OrchestratorConfig& config, metrics::Registry& registry) {
  std::unique_ptr<Tokenizer> tokenizer;
  if (!config.tokenizer.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(tokenizer, Tokenizer::Load(config.tokenizer));
  }
  std::vector<VerifierEndpoint> endpoints;
  FORETOKEN_ASSIGN_OR_RETURN(const std::string token,
                             rpc::ReadToken(config.verifier_channel));
  for (const std::string& address : config.verifiers) {
    FORETOKEN_ASSIGN_OR_RETURN(
        std::shared_ptr<grpc::Channel> channel,
        rpc::CreateChannel(address, config.verifier_channel));
    endpoints.push_back({address, std::move(channel), token});
  }
  OrchestratorServerOptions server = config.server;
  RemoteServicesOptions& drafters = server.drafters;
  FORETOKEN_ASSIGN_OR_RETURN(
      drafters.trie_drafter,
      Connect(config.trie_drafter, config.drafter_channel));
  FORETOKEN_ASSIGN_OR_RETURN(
      drafters.draft_worker,
      Connect(config.draft_worker, config.drafter_channel));
  FORETOKEN_ASSIGN_OR_RETURN(drafters.crest,
                             Connect(config.crest, config.drafter_channel));
  return OrchestratorServer::Create(
      server, std::make_unique<VerifierPool>(config.pool, std::move(endpoints)),
      std::move(tokenizer), registry);
}

}  // namespace foretoken::orchestrator
