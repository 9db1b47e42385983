#include "services/orchestrator/config.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/constraint_flags.h"
#include "common/rpc/discovery.h"
#include "common/rpc/draft_clients.h"
#include "common/rpc/stream_options.h"
#include "common/rpc/verify_client.h"
#include "common/speculation/modes.h"

namespace foretoken::orchestrator {

namespace {

void AddDraftingFlags(Flags& flags, OrchestratorServerOptions* server) {
  flags.String("crest-datastore", &server->drafters.crest_datastore,
               "Datastore of requests that name none");
  DraftWait& wait = server->draft_wait;
  flags.Double("draft-wait-passes", &wait.passes, {0.0, 1000.0},
               "Wait of requests in mode auto for drafts, in passes of the "
               "target");
  flags.Duration("draft-wait-floor", &wait.floor,
                 {absl::ZeroDuration(), absl::Minutes(1)},
                 "Minimum wait for drafts");
  flags.Duration("draft-wait-cap", &wait.cap,
                 {absl::ZeroDuration(), absl::Minutes(1)},
                 "Maximum wait of requests in mode auto for drafts");
  flags.Double("draft-wait-failure", &wait.failure, {1.0, 1000.0},
               "Wait of requests that name a mode for its whole drafts, in "
               "multiples of what these usually take; at least 2s, at most 1m");
  CircuitBreakerOptions& breaker = server->drafters.breaker;
  flags.Int("breaker-failures", &breaker.failures_in_a_row, {1, 1000},
            "Consecutive failures that open a drafting service's breaker");
  flags.Duration("breaker-silence", &breaker.silence,
                 {absl::Milliseconds(1), absl::Hours(1)},
                 "Count late answers as failures after this time without any "
                 "answer");
  flags.Duration("breaker-backoff", &breaker.first_backoff,
                 {absl::Milliseconds(1), absl::Hours(1)},
                 "Initial breaker back-off; doubles with every failed retry");
  flags.Duration("breaker-max-backoff", &breaker.max_backoff,
                 {absl::Milliseconds(1), absl::Hours(1)},
                 "Maximum breaker back-off");
}

absl::StatusOr<rpc::Endpoint> Connect(const rpc::Member& member,
                                      rpc::ChannelOptions options) {
  // Certificates of discovered replicas are issued for the host's name, not for
  // the address that it resolves to.
  if (options.tls_name.empty()) options.tls_name = member.host;
  rpc::Endpoint endpoint;
  FORETOKEN_ASSIGN_OR_RETURN(endpoint.channel,
                             rpc::CreateChannel(member.address, options));
  FORETOKEN_ASSIGN_OR_RETURN(endpoint.token, rpc::ReadToken(options));
  return endpoint;
}

std::vector<std::string> AddressesOf(const std::vector<rpc::Member>& members) {
  std::vector<std::string> addresses;
  addresses.reserve(members.size());
  for (const rpc::Member& member : members) {
    addresses.push_back(member.address);
  }
  return addresses;
}

// Finds unsafe addresses and missing files at start, before any name is
// resolved.
absl::Status CheckTargets(const std::vector<std::string>& targets,
                          const rpc::ChannelOptions& options) {
  for (const std::string& target : targets) {
    FORETOKEN_RETURN_IF_ERROR(rpc::ValidateTarget(target));
    FORETOKEN_RETURN_IF_ERROR(
        Connect({rpc::AddressOf(target), ""}, options).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<DraftEndpoint> ConnectDrafter(const std::string& service,
                                             const rpc::Member& member,
                                             rpc::ChannelOptions options) {
  options.health_service = rpc::DraftServiceName(service);
  FORETOKEN_ASSIGN_OR_RETURN(const rpc::Endpoint endpoint,
                             Connect(member, options));
  DraftEndpoint drafter;
  drafter.sessions = rpc::MakeDraftClient(endpoint, service);
  // Phrases are shared between requests by the trie drafter alone; the other
  // services have no such pool.
  if (service == "trie_drafter") {
    drafter.phrases = rpc::MakePhraseClient(endpoint);
  }
  // The channel is captured by value: the replica may be dropped by discovery
  // while a request still asks whether it is up.
  drafter.up = [channel = endpoint.channel] { return rpc::IsUp(*channel); };
  return drafter;
}

}  // namespace

void AddRequestFlags(Flags& flags, OrchestratorServerOptions* server) {
  flags.String(
      "mode", &server->default_mode,
      absl::StrCat(
          "Drafting of requests that name none, MODE[:key=value,...]: ",
          ModeHelp(ModeUse::kRequest)));
  flags.Require("mode", [server] {
    return std::string(Mode::Parse(server->default_mode).status().message());
  });
  flags.Bool("trace", &server->trace,
             "Log every round: tree, drafters, times; no text");
  flags.String("otlp-endpoint", &server->otlp_endpoint,
               "Send spans of requests whose caller traces them to this "
               "collector, http://HOST[:PORT][/PATH] (OTLP/HTTP with JSON)");
  flags.Require("otlp-endpoint", [server]() -> std::string {
    if (server->otlp_endpoint.empty()) return "";
    return std::string(
        ParseOtlpEndpoint(server->otlp_endpoint).status().message());
  });
  AddDraftingFlags(flags, server);
  flags.Int("max-requests", &server->max_requests, {1, 4096},
            "Maximum number of running requests");
  flags.Int("max-waiting-requests", &server->max_waiting_requests, {0, 65536},
            "Maximum number of queued requests");
  flags.Int("max-requests-per-caller", &server->max_requests_per_caller,
            {0, 4096},
            "Maximum number of running requests of a caller without a limit in "
            "the token file, 0 for three quarters of all");
  flags.Int64("memory-budget", &server->memory_budget,
              {int64_t{1} << 20, int64_t{1} << 50},
              "Bytes for all requests of this process together: being "
              "received, waiting and running");
  flags.Int64("max-waiting-bytes", &server->max_waiting_bytes,
              {1, int64_t{1} << 40}, "Maximum size of all queued prompts");
  flags.Duration("max-request-time", &server->max_request_time,
                 {absl::Milliseconds(1), absl::Hours(24 * 365)},
                 "Time limit of a request, queueing included");
  flags.Int64("max-prompt-bytes", &server->max_prompt_bytes,
              {1, int64_t{1} << 30}, "Maximum size of a prompt text");
  flags.String(
      "scope-key-file", &server->scope_key_file,
      "File with the key, at least 32 bytes, that ties cache scopes to "
      "authenticated callers; the same for all orchestrators. Without "
      "one, their scopes end with the process");
  flags.Duration(
      "failover-timeout", &server->verifier.failover_timeout,
      {absl::ZeroDuration(), absl::Hours(1)},
      "Time limit to find another verifier for a request with output");
  flags.Duration("connect-timeout", &server->verifier.connect_timeout,
                 {absl::ZeroDuration(), absl::Hours(1)},
                 "Time limit to find a verifier for a request without output");
}

void OrchestratorService::AddFlags(Flags& flags) {
  flags.List("verifiers", &verifiers,
             "Verifiers: addresses, or dns:///HOST:PORT for all addresses of a "
             "host, resolved again and again");
  verifier_channel.AddFlags(flags, "verifier");
  for (const std::string& service : DraftingServices()) {
    flags.List(absl::StrReplaceAll(service, {{"_", "-"}}), &drafters[service],
               absl::StrCat("Replicas of ", service,
                            ", as in --verifiers; empty for none"));
  }
  drafter_channel.AddFlags(flags, "drafter");
  discovery.AddFlags(flags);
  flags.Duration("probe-interval", &pool.probe_interval,
                 {absl::Milliseconds(10), absl::Minutes(10)},
                 "Interval between probes of a verifier");
  flags.String("tokenizer", &tokenizer,
               "Model directory or tokenizer file; empty: token ids only");
  flags.String("model-name", &server.model_name,
               "Model name shown to clients; empty: the verifiers' own");
  flags.Int("max-tree-nodes", &server.max_tree_nodes, {1, 256},
            "Maximum draft nodes of a tree; the verifiers' limit also applies");
  rpc::AddAnswerFlags(flags, &server.stall_timeout, &server.retry_after);
  rpc::AddConstraintFlags(flags, &server.grammars);
  AddRequestFlags(flags, &server);
  flags.Require("verifiers", [this]() -> std::string {
    return verifiers.empty() ? "want an address" : "";
  });
}

absl::StatusOr<std::unique_ptr<OrchestratorServer>> OrchestratorService::Make(
    metrics::Registry& registry) const {
  // Set before /metrics is served: the name is a label of every child and read
  // without a lock.
  if (!server.model_name.empty()) registry.SetModelName(server.model_name);
  std::shared_ptr<const Tokenizer> loaded;
  if (!tokenizer.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(loaded, Tokenizer::LoadShared(tokenizer));
  }
  FORETOKEN_RETURN_IF_ERROR(CheckTargets(verifiers, verifier_channel));
  // The pool probes those whose address is known before anybody can ask.
  std::vector<VerifierEndpoint> known;
  for (const std::string& target : verifiers) {
    // Names that resolve to several addresses (dns:///...) are left to the
    // discovery below; AddressOf leaves a plain address as it is.
    if (rpc::AddressOf(target) != target) continue;
    const bool twice = std::any_of(
        known.begin(), known.end(),
        [&](const VerifierEndpoint& each) { return each.name == target; });
    // A pool has one member per address. Twice the same address would be probed
    // twice and get twice its share of requests.
    if (twice) continue;
    FORETOKEN_ASSIGN_OR_RETURN(const rpc::Endpoint endpoint,
                               Connect({target, ""}, verifier_channel));
    known.push_back({target, rpc::MakeVerifyClient(endpoint)});
  }
  OrchestratorServerOptions options = server;
  for (const auto& [service, targets] : drafters) {
    FORETOKEN_RETURN_IF_ERROR(CheckTargets(targets, drafter_channel));
    // The service is made known without replicas, so that requests may name its
    // mode from the start; discovery fills in the replicas.
    if (!targets.empty()) options.drafters.services[service] = {};
  }
  auto verifier_pool = std::make_unique<VerifierPool>(pool, std::move(known));
  // The server takes the pool below; the reference stays valid, and the
  // discoveries, which use it, are destroyed first.
  VerifierPool& members = *verifier_pool;
  FORETOKEN_ASSIGN_OR_RETURN(
      std::unique_ptr<OrchestratorServer> made,
      OrchestratorServer::Create(options, std::move(verifier_pool),
                                 std::move(loaded), registry));
  made->Follow(std::make_unique<rpc::Discovery>(
      discovery, verifiers,
      [&members,
       channel = verifier_channel](const std::vector<rpc::Member>& found) {
        members.SetMembers(
            AddressesOf(found),
            [&](size_t i) -> absl::StatusOr<std::shared_ptr<VerifierPeer>> {
              FORETOKEN_ASSIGN_OR_RETURN(const rpc::Endpoint endpoint,
                                         Connect(found[i], channel));
              return rpc::MakeVerifyClient(endpoint);
            });
      }));
  for (const auto& [service, targets] : drafters) {
    if (targets.empty()) continue;
    // Captured by value: structured bindings of the loop end with it, and
    // discovery calls from its own thread for as long as the server lives.
    made->Follow(std::make_unique<rpc::Discovery>(
        discovery, targets,
        [&replicas = made->drafters().Replicas(service), service = service,
         channel = drafter_channel](const std::vector<rpc::Member>& found) {
          replicas.SetMembers(AddressesOf(found), [&](size_t i) {
            return ConnectDrafter(service, found[i], channel);
          });
        }));
  }
  return made;
}

}  // namespace foretoken::orchestrator
