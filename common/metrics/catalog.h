// Every metric that Foretoken exports: name, help, label and bucket bounds in
// one place, which dashboards and alerts are tested against.
//
// The field's names where it has them (those of vLLM), prefixed `foretoken_`.
// Counts are exported and PromQL divides: accept length is
//   1 + rate(foretoken_spec_decode_num_accepted_tokens_total)
//       / rate(foretoken_rounds_total).
#ifndef FORETOKEN_COMMON_METRICS_CATALOG_H_
#define FORETOKEN_COMMON_METRICS_CATALOG_H_

#include "absl/types/span.h"

namespace foretoken::metrics {

enum class Kind { kCounter, kGauge, kHistogram };

struct Spec {
  const char* name;
  Kind kind;
  const char* help;
  const char* label = nullptr;
  absl::Span<const double> bounds = {};  // histograms: upper bounds, ascending
  const char* second_label = nullptr;
};

// `label`, if any, has a closed set of values; so has `second_label`.
constexpr Spec Counter(const char* name, const char* help,
                       const char* label = nullptr,
                       const char* second_label = nullptr) {
  return {name, Kind::kCounter, help, label, {}, second_label};
}
constexpr Spec Gauge(const char* name, const char* help,
                     const char* label = nullptr) {
  return {name, Kind::kGauge, help, label};
}
constexpr Spec Histogram(const char* name, absl::Span<const double> bounds,
                         const char* help, const char* label = nullptr) {
  return {name, Kind::kHistogram, help, label, bounds};
}

// Bounds. Latencies reach from an in-process round to a long generation.
inline constexpr double kLatencyBounds[] = {
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,  0.25,
    0.5,    1.0,   2.5,    5.0,   10.0, 30.0,  60.0, 300.0};
inline constexpr double kLookupBounds[] = {
    1e-6,   2e-6,  5e-6,   1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4,
    0.0005, 0.001, 0.0025, 0.01, 0.05,   0.1,  0.25, 1.0};
inline constexpr double kGrammarBounds[] = {
    1e-6,  1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 0.0005, 0.001, 0.0025,
    0.005, 0.01, 0.025,  0.1,  0.25, 1.0,    2.5,    10.0,  60.0};
inline constexpr double kRowBounds[] = {1,  2,   4,   8,   16,   32,
                                        64, 128, 256, 512, 1024, 2048};
inline constexpr double kNodeBounds[] = {0, 1, 2, 4, 8, 16, 32, 64, 128, 256};

// Accepted positions 0..kMaxPositions-2 have a label each; deeper ones share
// the last.
inline constexpr int kMaxPositions = 16;

// The process.
inline constexpr Spec kDroppedLogLines =
    Counter("foretoken_log_lines_dropped_total",
            "Lines of the log dropped because nothing read it");
inline constexpr Spec kUnauthenticated = Counter(
    "foretoken_unauthenticated_calls_total",
    "Calls and HTTP requests refused because they carried no known token");

// Served requests and RPCs.
inline constexpr Spec kRequests =
    Counter("foretoken_requests_total",
            "Requests ended, by status code (OK, CANCELLED, ...)", "code");
inline constexpr Spec kRequestsRunning =
    Gauge("foretoken_requests_running", "Generate calls in progress");
inline constexpr Spec kRequestsWaiting =
    Gauge("foretoken_requests_waiting",
          "Those of them that wait in the orchestrator's queue");
inline constexpr Spec kPromptTokens = Counter(
    "foretoken_prompt_tokens_total", "Prompt tokens of admitted requests");
inline constexpr Spec kGenerationTokens = Counter(
    "foretoken_generation_tokens_total", "Tokens generated and kept", "mode");
inline constexpr Spec kTimeToFirstToken =
    Histogram("foretoken_time_to_first_token_seconds", kLatencyBounds,
              "From the call to the first token");
inline constexpr Spec kInterTokenLatency =
    Histogram("foretoken_inter_token_latency_seconds", kLatencyBounds,
              "Time of a round over the tokens that it gave");
inline constexpr Spec kRequestLatency =
    Histogram("foretoken_e2e_request_latency_seconds", kLatencyBounds,
              "From the call to its end, served requests");

inline constexpr Spec kRequestsRefused =
    Counter("foretoken_requests_refused_total",
            "Requests refused though they were in order: memory, queue, quota, "
            "draining",
            "reason");
inline constexpr Spec kRequestMemory = Gauge(
    "foretoken_request_memory_bytes",
    "Memory budget in use: requests, encoding (texts being encoded)", "part");
inline constexpr Spec kRequestMemoryLimit =
    Gauge("foretoken_request_memory_limit_bytes",
          "Memory budget in all: requests, encoding", "part");

inline constexpr Spec kPrincipalRequests =
    Counter("foretoken_principal_requests_total",
            "Requests ended, by account of the token file (all other callers: "
            "other) and outcome: served, refused (RESOURCE_EXHAUSTED), "
            "cancelled, failed",
            "principal", "outcome");
inline constexpr Spec kPrincipalTokens =
    Counter("foretoken_principal_tokens_total",
            "Tokens by account: prompt (of served requests), generated",
            "principal", "kind");

inline constexpr Spec kTraceSpans =
    Counter("foretoken_trace_spans_total",
            "Spans of traced requests: exported, dropped (the queue was full "
            "or the collector took none)",
            "result");

// Speculation, counted where rounds are driven.
inline constexpr Spec kRounds =
    Counter("foretoken_rounds_total",
            "Verification rounds, also without drafts", "mode");
inline constexpr Spec kNumDrafts = Counter(
    "foretoken_spec_decode_num_drafts_total", "Rounds that verified a draft");
inline constexpr Spec kNumDraftTokens = Counter(
    "foretoken_spec_decode_num_draft_tokens_total", "Draft tokens verified");
inline constexpr Spec kNumAcceptedTokens =
    Counter("foretoken_spec_decode_num_accepted_tokens_total",
            "Draft tokens accepted", "mode");
inline constexpr Spec kNumAcceptedPerPosition =
    Counter("foretoken_spec_decode_num_accepted_tokens_per_pos_total",
            "Draft tokens accepted, by depth below the last committed token",
            "position");
inline constexpr Spec kDraftedByDrafter = Counter(
    "foretoken_drafted_tokens_total",
    "Draft tokens verified, by every drafter that proposed them", "drafter");
inline constexpr Spec kAcceptedByDrafter = Counter(
    "foretoken_accepted_tokens_total",
    "Draft tokens accepted, by the drafter they are credited to", "drafter");
inline constexpr Spec kDegradedRounds =
    Counter("foretoken_degraded_rounds_total",
            "Rounds that went on without a draft that was wanted: late, "
            "refused, broken, breaker_open",
            "drafter", "reason");
inline constexpr Spec kShortenedDrafts =
    Counter("foretoken_shortened_drafts_total",
            "Drafts that came late, or were cut off before their mode was done",
            "drafter");
inline constexpr Spec kDraftLatency =
    Histogram("foretoken_draft_latency_seconds", kLatencyBounds,
              "From an ask to the draft, answers in time alone", "drafter");
inline constexpr Spec kBreakerState =
    Gauge("foretoken_breaker_state",
          "Circuit breaker of a drafting service, the best of its replicas: 0 "
          "closed, "
          "1 half-open, 2 open",
          "service");
inline constexpr Spec kPhaseLatency =
    Histogram("foretoken_phase_latency_seconds", kLatencyBounds,
              "Time of a round's phase: draft, verify", "phase");
inline constexpr Spec kTreeNodes = Histogram(
    "foretoken_tree_nodes", kNodeBounds, "Draft nodes of a round's tree");
inline constexpr Spec kConstraints =
    Counter("foretoken_constraints_total",
            "Requests with a constraint, by its grammar: kept from an earlier "
            "one, compiled, refused",
            "grammar");
inline constexpr Spec kConstraintCompile =
    Histogram("foretoken_constraint_compile_seconds", kGrammarBounds,
              "Time to compile a constraint, the wait for a thread included");
inline constexpr Spec kFailovers =
    Counter("foretoken_verifier_failovers_total",
            "Sessions replayed on a verifier after theirs was lost");

// The engine.
inline constexpr Spec kSessions =
    Gauge("foretoken_sessions", "Sessions open, waiting ones included");
inline constexpr Spec kStreams =
    Gauge("foretoken_streams", "Verify streams open");
inline constexpr Spec kEngineQueue = Gauge(
    "foretoken_engine_queue_length", "Messages waiting for the engine thread");
inline constexpr Spec kEngineHangs =
    Gauge("foretoken_engine_hangs",
          "1 while the verifier's engine does not finish its pass");
inline constexpr Spec kSessionsFailed =
    Counter("foretoken_sessions_failed_total",
            "Sessions that ended with an error, by status code", "code");
inline constexpr Spec kKvPagesTotal =
    Gauge("foretoken_kv_pages", "KV cache pages in all");
inline constexpr Spec kKvPagesFree =
    Gauge("foretoken_kv_pages_free",
          "KV cache pages that are unused or evictable at once");
inline constexpr Spec kKvPagesCached =
    Gauge("foretoken_kv_pages_cached",
          "Free KV cache pages that are kept for prefix reuse");
inline constexpr Spec kPasses =
    Counter("foretoken_passes_total", "Forward passes");
inline constexpr Spec kPassLatency =
    Histogram("foretoken_pass_latency_seconds", kLatencyBounds,
              "Time of a forward pass, commit included");
inline constexpr Spec kPassRows = Histogram(
    "foretoken_pass_rows", kRowBounds, "Rows of a pass, all sessions together");
inline constexpr Spec kGrammarMasks =
    Counter("foretoken_grammar_masks_total",
            "Rows of passes that a constraint limits, those of a pass that is "
            "run again included");
inline constexpr Spec kGrammarMaskLatency =
    Histogram("foretoken_grammar_mask_seconds", kGrammarBounds,
              "Time of a pass's masks, if it has any");
inline constexpr Spec kGrammarMemory =
    Gauge("foretoken_grammar_memory_bytes",
          "Memory of the grammars that sessions use or have used");
inline constexpr Spec kPrefixReused =
    Counter("foretoken_prefix_reused_tokens_total",
            "Prompt tokens taken from the prefix cache");
inline constexpr Spec kDraftArmSeconds =
    Counter("foretoken_draft_arm_seconds_total",
            "Time in which requests in mode auto decode, by the arm that they "
            "are told to draft under: off, narrow, wide",
            "arm");
inline constexpr Spec kPreemptions =
    Counter("foretoken_preemptions_total", "Sessions preempted for KV pages");
inline constexpr Spec kReplays =
    Counter("foretoken_replays_total", "Preempted sessions that were replayed");

// Datastores. The label `datastore` holds names of the configuration.
inline constexpr Spec kCrestStreams =
    Gauge("foretoken_crest_streams", "Lookup streams open");
inline constexpr Spec kCrestLookups =
    Counter("foretoken_crest_lookups_total",
            "Look-ups, by length of the n-gram found (hit_1, hit_2, ...), miss "
            "or error",
            "result");
inline constexpr Spec kCrestLookupLatency = Histogram(
    "foretoken_crest_lookup_latency_seconds", kLookupBounds,
    "From a request to its answer, by where it was looked up: memory, postgres",
    "path");
inline constexpr Spec kCrestCacheLookups = Counter(
    "foretoken_crest_cache_lookups_total",
    "Look-ups through PostgreSQL that the cache answered (hit) or not (miss)",
    "result");
inline constexpr Spec kCrestDatastores =
    Gauge("foretoken_crest_datastores", "Datastores that serve a version");
inline constexpr Spec kCrestVersion =
    Gauge("foretoken_crest_version",
          "Number of the version that serves, 0 for none", "datastore");
inline constexpr Spec kCrestReady = Gauge(
    "foretoken_crest_datastore_ready",
    "1 while the datastore can answer look-ups; an empty one can", "datastore");
inline constexpr Spec kCrestSwitches =
    Counter("foretoken_crest_switches_total", "Versions that began to serve",
            "datastore");
inline constexpr Spec kCrestFailedLoads = Counter(
    "foretoken_crest_failed_loads_total",
    "Versions that could not be loaded, every attempt counted", "datastore");
inline constexpr Spec kCrestIngests =
    Counter("foretoken_crest_ingests_total",
            "Ingest calls ended, by status code", "code");

// The trie drafter.
inline constexpr Spec kTrieStreams =
    Gauge("foretoken_trie_streams", "Draft streams open");
inline constexpr Spec kTrieSessions =
    Gauge("foretoken_trie_sessions", "Drafting sessions open");
inline constexpr Spec kTrieSessionBytes =
    Gauge("foretoken_trie_session_bytes", "Memory of the sessions' own tries");
inline constexpr Spec kTrieSessionsFailed =
    Counter("foretoken_trie_sessions_failed_total",
            "Draft streams that ended with an error, by status code", "code");
inline constexpr Spec kTrieRounds =
    Counter("foretoken_trie_rounds_total", "Rounds answered");
inline constexpr Spec kTrieNodes =
    Counter("foretoken_trie_draft_nodes_total", "Nodes drafted");
inline constexpr Spec kTrieDraftLatency =
    Histogram("foretoken_trie_draft_latency_seconds", kLookupBounds,
              "Time of a round's commit and draft, without its way");
inline constexpr Spec kTrieScopes =
    Gauge("foretoken_trie_scopes", "Cache scopes in memory");
inline constexpr Spec kTrieScopesEvicted =
    Counter("foretoken_trie_scopes_evicted_total",
            "Cache scopes that had to make room");
inline constexpr Spec kTrieHistoryTokens =
    Gauge("foretoken_trie_history_tokens",
          "Tokens of earlier outputs held, all scopes together");
inline constexpr Spec kTriePoolPhrases =
    Gauge("foretoken_trie_pool_phrases",
          "Phrases in the shared pools, all scopes together");
inline constexpr Spec kTriePriorTokens =
    Gauge("foretoken_trie_scope_prior_tokens",
          "Tokens counted by the scopes' own priors, all together");
inline constexpr Spec kTriePriorBytes =
    Gauge("foretoken_trie_scope_prior_bytes",
          "Memory of the scopes' own priors and their text, all together");
inline constexpr Spec kTriePriorCompactions =
    Counter("foretoken_trie_scope_prior_compactions_total",
            "Priors of scopes that were built and published");
inline constexpr Spec kTrieSharedBytes =
    Gauge("foretoken_trie_shared_bytes",
          "Memory of histories, pools and scopes' priors, all together");
inline constexpr Spec kTrieLookups =
    Counter("foretoken_trie_scope_lookups_total",
            "Scopes asked for their history or pool, by whether they had any: "
            "history_hit, history_miss, pool_hit, pool_miss",
            "result");
inline constexpr Spec kWarmStart =
    Counter("foretoken_warm_start_events_total",
            "What became of loads and writes of the warm start: loaded, empty, "
            "load_failed, record_refused, written, write_failed, dropped",
            "result");
inline constexpr Spec kRedisUp =
    Gauge("foretoken_redis_up",
          "1 while the warm start's Redis answers, 0 also without one");

// The draft worker.
inline constexpr Spec kDraftWorkerStreams =
    Gauge("foretoken_draft_worker_streams", "Draft streams open");
inline constexpr Spec kDraftWorkerSessions =
    Gauge("foretoken_draft_worker_sessions", "Drafting sessions open");
inline constexpr Spec kDraftWorkerSessionsFailed =
    Counter("foretoken_draft_worker_sessions_failed_total",
            "Draft streams that ended with an error, by status code", "code");
inline constexpr Spec kDraftWorkerMuted = Counter(
    "foretoken_draft_worker_muted_sessions_total",
    "Sessions whose text the draft model cannot follow: drafts are empty");
inline constexpr Spec kDraftWorkerVocabularyMisses = Counter(
    "foretoken_draft_worker_vocabulary_misses_total",
    "Committed tokens outside the part of the vocabulary that is drafted");
inline constexpr Spec kDraftWorkerQueue =
    Gauge("foretoken_draft_worker_queue_length",
          "Calls waiting for the engine thread");
inline constexpr Spec kDraftWorkerHangs =
    Gauge("foretoken_draft_worker_engine_hangs",
          "1 while the draft worker's engine does not finish its pass");
inline constexpr Spec kDraftWorkerPasses = Counter(
    "foretoken_draft_worker_passes_total", "Forward passes of the draft model");
inline constexpr Spec kDraftWorkerPassLatency =
    Histogram("foretoken_draft_worker_pass_latency_seconds", kLatencyBounds,
              "Time of a forward pass of the draft model");
inline constexpr Spec kDraftWorkerPassRows =
    Histogram("foretoken_draft_worker_pass_rows", kRowBounds,
              "Rows of a pass, all sessions together");
inline constexpr Spec kDraftWorkerTextRows = Counter(
    "foretoken_draft_worker_text_rows_total",
    "Rows that read committed text: prompts, and what no draft foresaw");
inline constexpr Spec kDraftWorkerKeptRows =
    Counter("foretoken_draft_worker_kept_rows_total",
            "Accepted draft tokens whose KV was kept from their draft");
inline constexpr Spec kDraftWorkerPrefixReused =
    Counter("foretoken_draft_worker_prefix_reused_tokens_total",
            "Prompt tokens taken from the prefix cache");
inline constexpr Spec kDraftWorkerPages =
    Gauge("foretoken_draft_worker_kv_pages", "KV cache pages in all");
inline constexpr Spec kDraftWorkerPagesFree =
    Gauge("foretoken_draft_worker_kv_pages_free",
          "KV cache pages that are unused or evictable at once");
inline constexpr Spec kDraftWorkerDrafts = Counter(
    "foretoken_draft_worker_drafts_total", "Drafts answered that hold a token");
inline constexpr Spec kDraftWorkerDraftTokens =
    Counter("foretoken_draft_worker_draft_tokens_total",
            "Nodes of the drafts answered");
inline constexpr Spec kDraftWorkerDraftLatency =
    Histogram("foretoken_draft_worker_draft_latency_seconds", kLatencyBounds,
              "From a round to its draft, inside the worker");
inline constexpr Spec kDraftWorkerPoolPhrases =
    Gauge("foretoken_draft_worker_pool_phrases",
          "Phrases in the working pools of all sessions");
inline constexpr Spec kDraftWorkerPhrases =
    Counter("foretoken_draft_worker_phrases_total",
            "Phrases of working pools: made by the lookahead branch, tried "
            "against the draft model, inspired, refined",
            "event");
inline constexpr Spec kDraftWorkerPhraseTokens =
    Counter("foretoken_draft_worker_phrase_tokens_total",
            "Tokens of tried phrases that the draft model agreed with");

// The gateway.
inline constexpr Spec kHttpRequests =
    Counter("foretoken_http_requests_total",
            "HTTP requests answered, by endpoint and status (499: the client "
            "went away first)",
            "route", "code");
inline constexpr Spec kHttpRunning =
    Gauge("foretoken_http_requests_running", "HTTP requests in progress");
inline constexpr Spec kHttpLatency =
    Histogram("foretoken_http_request_latency_seconds", kLatencyBounds,
              "From an HTTP request to the end of its answer", "route");
inline constexpr Spec kHttpConnections =
    Gauge("foretoken_http_connections", "HTTP connections open");
inline constexpr Spec kHttpDeltas =
    Counter("foretoken_http_deltas_total",
            "Pieces of output received for HTTP requests");
inline constexpr Spec kHttpPauses =
    Counter("foretoken_http_pauses_total",
            "Times that a request had to wait for its client to read");

// The metrics of each service: every Spec stands in exactly one list.
inline constexpr const Spec* kOrchestratorMetrics[] = {
    &kRequests,           &kRequestsRunning,
    &kPromptTokens,       &kGenerationTokens,
    &kTimeToFirstToken,   &kInterTokenLatency,
    &kRequestLatency,     &kRounds,
    &kNumDrafts,          &kNumDraftTokens,
    &kNumAcceptedTokens,  &kNumAcceptedPerPosition,
    &kDraftedByDrafter,   &kAcceptedByDrafter,
    &kDegradedRounds,     &kShortenedDrafts,
    &kPhaseLatency,       &kTreeNodes,
    &kFailovers,          &kDraftLatency,
    &kBreakerState,       &kPrincipalRequests,
    &kPrincipalTokens,    &kTraceSpans,
    &kRequestsRefused,    &kRequestMemory,
    &kRequestMemoryLimit, &kRequestsWaiting,
    &kConstraints,        &kConstraintCompile};
inline constexpr const Spec* kVerifierMetrics[] = {&kSessions,
                                                   &kStreams,
                                                   &kEngineQueue,
                                                   &kEngineHangs,
                                                   &kSessionsFailed,
                                                   &kKvPagesTotal,
                                                   &kKvPagesFree,
                                                   &kKvPagesCached,
                                                   &kPasses,
                                                   &kPassLatency,
                                                   &kPassRows,
                                                   &kPrefixReused,
                                                   &kPreemptions,
                                                   &kReplays,
                                                   &kDraftArmSeconds,
                                                   &kGrammarMasks,
                                                   &kGrammarMaskLatency,
                                                   &kGrammarMemory};
inline constexpr const Spec* kDraftWorkerMetrics[] = {
    &kDraftWorkerStreams,         &kDraftWorkerSessions,
    &kDraftWorkerSessionsFailed,  &kDraftWorkerMuted,
    &kDraftWorkerQueue,           &kDraftWorkerHangs,
    &kDraftWorkerPasses,          &kDraftWorkerPassLatency,
    &kDraftWorkerPassRows,        &kDraftWorkerTextRows,
    &kDraftWorkerKeptRows,        &kDraftWorkerPrefixReused,
    &kDraftWorkerPages,           &kDraftWorkerPagesFree,
    &kDraftWorkerDrafts,          &kDraftWorkerDraftTokens,
    &kDraftWorkerDraftLatency,    &kDraftWorkerPoolPhrases,
    &kDraftWorkerPhrases,         &kDraftWorkerPhraseTokens,
    &kDraftWorkerVocabularyMisses};
inline constexpr const Spec* kTrieDrafterMetrics[] = {
    &kTrieStreams,       &kTrieSessions,
    &kTrieSessionBytes,  &kTrieSessionsFailed,
    &kTrieRounds,        &kTrieNodes,
    &kTrieDraftLatency,  &kTrieScopes,
    &kTrieScopesEvicted, &kTrieHistoryTokens,
    &kTriePoolPhrases,   &kTriePriorTokens,
    &kTriePriorBytes,    &kTriePriorCompactions,
    &kTrieSharedBytes,   &kTrieLookups,
    &kWarmStart,         &kRedisUp};
inline constexpr const Spec* kCrestMetrics[] = {
    &kCrestStreams,      &kCrestLookups,    &kCrestLookupLatency,
    &kCrestCacheLookups, &kCrestDatastores, &kCrestVersion,
    &kCrestReady,        &kCrestSwitches,   &kCrestFailedLoads,
    &kCrestIngests};

inline constexpr const Spec* kGatewayMetrics[] = {
    &kHttpRequests,    &kHttpRunning, &kHttpLatency,
    &kHttpConnections, &kHttpDeltas,  &kHttpPauses};

// Every process exports these in addition to the metrics of its service.
inline constexpr const Spec* kProcessMetrics[] = {&kDroppedLogLines,
                                                  &kUnauthenticated};

struct Catalog {
  const char* service;  // its folder
  absl::Span<const Spec* const> metrics;
};

inline constexpr Catalog kCatalogs[] = {{"orchestrator", kOrchestratorMetrics},
                                        {"verifier", kVerifierMetrics},
                                        {"draft_worker", kDraftWorkerMetrics},
                                        {"trie_drafter", kTrieDrafterMetrics},
                                        {"crest", kCrestMetrics},
                                        {"gateway", kGatewayMetrics}};

}  // namespace foretoken::metrics

#endif  // FORETOKEN_COMMON_METRICS_CATALOG_H_
