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
  const char* label = nullptr;           // of a closed set of values
  absl::Span<const double> bounds = {};  // histograms: upper bounds, ascending
  const char* second_label = nullptr;    // counters: beside the first
};

// Bounds. Latencies reach from an in-process round to a long generation.
inline constexpr double kLatencyBounds[] = {
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,  0.25,
    0.5,    1.0,   2.5,    5.0,   10.0, 30.0,  60.0, 300.0};
inline constexpr double kLookupBounds[] = {
    1e-6,   2e-6,  5e-6,   1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4,
    0.0005, 0.001, 0.0025, 0.01, 0.05,   0.1,  0.25, 1.0};
inline constexpr double kRowBounds[] = {1,  2,   4,   8,   16,   32,
                                        64, 128, 256, 512, 1024, 2048};
inline constexpr double kNodeBounds[] = {0, 1, 2, 4, 8, 16, 32, 64, 128, 256};

// Accepted positions 0..kMaxPositions-2 have a label each; deeper ones share
// the last.
inline constexpr int kMaxPositions = 16;

// Served requests and RPCs.
inline constexpr Spec kRequests = {
    "foretoken_requests_total", Kind::kCounter,
    "Requests ended, by status code (OK, CANCELLED, ...)", "code"};
inline constexpr Spec kRequestsRunning = {
    "foretoken_requests_running", Kind::kGauge, "Generate calls in progress"};
inline constexpr Spec kPromptTokens = {"foretoken_prompt_tokens_total",
                                       Kind::kCounter,
                                       "Prompt tokens of admitted requests"};
inline constexpr Spec kGenerationTokens = {"foretoken_generation_tokens_total",
                                           Kind::kCounter,
                                           "Tokens generated and kept"};
inline constexpr Spec kTimeToFirstToken = {
    "foretoken_time_to_first_token_seconds", Kind::kHistogram,
    "From the call to the first token", nullptr, kLatencyBounds};
inline constexpr Spec kInterTokenLatency = {
    "foretoken_inter_token_latency_seconds", Kind::kHistogram,
    "Time of a round over the tokens that it gave", nullptr, kLatencyBounds};
inline constexpr Spec kRequestLatency = {
    "foretoken_e2e_request_latency_seconds", Kind::kHistogram,
    "From the call to its end, served requests", nullptr, kLatencyBounds};

// Speculation, counted where rounds are driven.
inline constexpr Spec kRounds = {"foretoken_rounds_total", Kind::kCounter,
                                 "Verification rounds, also without drafts"};
inline constexpr Spec kNumDrafts = {"foretoken_spec_decode_num_drafts_total",
                                    Kind::kCounter,
                                    "Rounds that verified a draft"};
inline constexpr Spec kNumDraftTokens = {
    "foretoken_spec_decode_num_draft_tokens_total", Kind::kCounter,
    "Draft tokens verified"};
inline constexpr Spec kNumAcceptedTokens = {
    "foretoken_spec_decode_num_accepted_tokens_total", Kind::kCounter,
    "Draft tokens accepted"};
inline constexpr Spec kNumAcceptedPerPosition = {
    "foretoken_spec_decode_num_accepted_tokens_per_pos_total", Kind::kCounter,
    "Draft tokens accepted, by depth below the last committed token",
    "position"};
inline constexpr Spec kDraftedByDrafter = {
    "foretoken_drafted_tokens_total", Kind::kCounter,
    "Draft tokens verified, by every drafter that proposed them", "drafter"};
inline constexpr Spec kAcceptedByDrafter = {
    "foretoken_accepted_tokens_total", Kind::kCounter,
    "Draft tokens accepted, by the drafter they are credited to", "drafter"};
inline constexpr Spec kDegradedRounds = {
    "foretoken_degraded_rounds_total",
    Kind::kCounter,
    "Rounds that went on without a draft that was wanted: late, refused, "
    "broken, breaker_open",
    "drafter",
    {},
    "reason"};
inline constexpr Spec kDraftLatency = {
    "foretoken_draft_latency_seconds", Kind::kHistogram,
    "From an ask to the draft, answers in time alone", "drafter",
    kLatencyBounds};
inline constexpr Spec kBreakerState = {
    "foretoken_breaker_state", Kind::kGauge,
    "Circuit breaker of a drafting service: 0 closed, 1 half-open, 2 open",
    "service"};
inline constexpr Spec kPhaseLatency = {
    "foretoken_phase_latency_seconds", Kind::kHistogram,
    "Time of a round's phase: draft, verify", "phase", kLatencyBounds};
inline constexpr Spec kTreeNodes = {"foretoken_tree_nodes", Kind::kHistogram,
                                    "Draft nodes of a round's tree", nullptr,
                                    kNodeBounds};
inline constexpr Spec kFailovers = {
    "foretoken_verifier_failovers_total", Kind::kCounter,
    "Sessions replayed on a verifier after theirs was lost"};

// The engine.
inline constexpr Spec kSessions = {"foretoken_sessions", Kind::kGauge,
                                   "Sessions open, waiting ones included"};
inline constexpr Spec kStreams = {"foretoken_streams", Kind::kGauge,
                                  "Verify streams open"};
inline constexpr Spec kEngineQueue = {"foretoken_engine_queue_length",
                                      Kind::kGauge,
                                      "Messages waiting for the engine thread"};
inline constexpr Spec kSessionsFailed = {
    "foretoken_sessions_failed_total", Kind::kCounter,
    "Sessions that ended with an error, by status code", "code"};
inline constexpr Spec kKvPagesTotal = {"foretoken_kv_pages", Kind::kGauge,
                                       "KV cache pages in all"};
inline constexpr Spec kKvPagesFree = {
    "foretoken_kv_pages_free", Kind::kGauge,
    "KV cache pages that are unused or evictable at once"};
inline constexpr Spec kKvPagesCached = {
    "foretoken_kv_pages_cached", Kind::kGauge,
    "Free KV cache pages that are kept for prefix reuse"};
inline constexpr Spec kPasses = {"foretoken_passes_total", Kind::kCounter,
                                 "Forward passes"};
inline constexpr Spec kPassLatency = {
    "foretoken_pass_latency_seconds", Kind::kHistogram,
    "Time of a forward pass, commit included", nullptr, kLatencyBounds};
inline constexpr Spec kPassRows = {"foretoken_pass_rows", Kind::kHistogram,
                                   "Rows of a pass, all sessions together",
                                   nullptr, kRowBounds};
inline constexpr Spec kPrefixReused = {
    "foretoken_prefix_reused_tokens_total", Kind::kCounter,
    "Prompt tokens taken from the prefix cache"};
inline constexpr Spec kPreemptions = {"foretoken_preemptions_total",
                                      Kind::kCounter,
                                      "Sessions preempted for KV pages"};
inline constexpr Spec kReplays = {"foretoken_replays_total", Kind::kCounter,
                                  "Preempted sessions that were replayed"};

// Datastores. The label `datastore` holds names of the configuration.
inline constexpr Spec kCrestStreams = {"foretoken_crest_streams", Kind::kGauge,
                                       "Lookup streams open"};
inline constexpr Spec kCrestLookups = {
    "foretoken_crest_lookups_total", Kind::kCounter,
    "Look-ups, by length of the n-gram found (hit_1, hit_2, ...), miss or "
    "error",
    "result"};
inline constexpr Spec kCrestLookupLatency = {
    "foretoken_crest_lookup_latency_seconds", Kind::kHistogram,
    "From a request to its answer, by where it was looked up: memory, postgres",
    "path", kLookupBounds};
inline constexpr Spec kCrestCacheLookups = {
    "foretoken_crest_cache_lookups_total", Kind::kCounter,
    "Look-ups through PostgreSQL that the cache answered (hit) or not (miss)",
    "result"};
inline constexpr Spec kCrestVersion = {
    "foretoken_crest_version", Kind::kGauge,
    "Number of the version that serves, 0 for none", "datastore"};
inline constexpr Spec kCrestReady = {
    "foretoken_crest_datastore_ready", Kind::kGauge,
    "1 while the datastore can answer look-ups", "datastore"};
inline constexpr Spec kCrestSwitches = {
    "foretoken_crest_switches_total", Kind::kCounter,
    "Versions that began to serve", "datastore"};
inline constexpr Spec kCrestFailedLoads = {
    "foretoken_crest_failed_loads_total", Kind::kCounter,
    "Versions that could not be loaded, every attempt counted", "datastore"};
inline constexpr Spec kCrestIngests = {
    "foretoken_crest_ingests_total", Kind::kCounter,
    "Ingest calls ended, by status code", "code"};

// The trie drafter.
inline constexpr Spec kTrieStreams = {"foretoken_trie_streams", Kind::kGauge,
                                      "Draft streams open"};
inline constexpr Spec kTrieSessions = {"foretoken_trie_sessions", Kind::kGauge,
                                       "Drafting sessions open"};
inline constexpr Spec kTrieSessionBytes = {"foretoken_trie_session_bytes",
                                           Kind::kGauge,
                                           "Memory of the sessions' own tries"};
inline constexpr Spec kTrieSessionsFailed = {
    "foretoken_trie_sessions_failed_total", Kind::kCounter,
    "Draft streams that ended with an error, by status code", "code"};
inline constexpr Spec kTrieRounds = {"foretoken_trie_rounds_total",
                                     Kind::kCounter, "Rounds answered"};
inline constexpr Spec kTrieNodes = {"foretoken_trie_draft_nodes_total",
                                    Kind::kCounter, "Nodes drafted"};
inline constexpr Spec kTrieDraftLatency = {
    "foretoken_trie_draft_latency_seconds", Kind::kHistogram,
    "Time of a round's commit and draft, without its way", nullptr,
    kLookupBounds};
inline constexpr Spec kTrieScopes = {"foretoken_trie_scopes", Kind::kGauge,
                                     "Cache scopes in memory"};
inline constexpr Spec kTrieScopesEvicted = {
    "foretoken_trie_scopes_evicted_total", Kind::kCounter,
    "Cache scopes that had to make room"};
inline constexpr Spec kTrieHistoryTokens = {
    "foretoken_trie_history_tokens", Kind::kGauge,
    "Tokens of earlier outputs held, all scopes together"};
inline constexpr Spec kTriePoolPhrases = {
    "foretoken_trie_pool_phrases", Kind::kGauge,
    "Phrases in the shared pools, all scopes together"};
inline constexpr Spec kTrieSharedBytes = {
    "foretoken_trie_shared_bytes", Kind::kGauge,
    "Memory of histories and pools, all scopes together"};
inline constexpr Spec kTrieLookups = {
    "foretoken_trie_scope_lookups_total", Kind::kCounter,
    "Scopes asked for their history or pool, by whether they had any: "
    "history_hit, history_miss, pool_hit, pool_miss",
    "result"};
inline constexpr Spec kWarmStart = {
    "foretoken_warm_start_events_total", Kind::kCounter,
    "What became of loads and writes of the warm start: loaded, empty, "
    "load_failed, record_refused, written, write_failed, dropped",
    "result"};
inline constexpr Spec kRedisUp = {
    "foretoken_redis_up", Kind::kGauge,
    "1 while the warm start's Redis answers, 0 also without one"};

// The draft worker.
inline constexpr Spec kDraftWorkerStreams = {
    "foretoken_draft_worker_streams", Kind::kGauge, "Draft streams open"};
inline constexpr Spec kDraftWorkerSessions = {
    "foretoken_draft_worker_sessions", Kind::kGauge, "Drafting sessions open"};
inline constexpr Spec kDraftWorkerSessionsFailed = {
    "foretoken_draft_worker_sessions_failed_total", Kind::kCounter,
    "Draft streams that ended with an error, by status code", "code"};
inline constexpr Spec kDraftWorkerMuted = {
    "foretoken_draft_worker_muted_sessions_total", Kind::kCounter,
    "Sessions whose text the draft model cannot follow: drafts are empty"};
inline constexpr Spec kDraftWorkerQueue = {
    "foretoken_draft_worker_queue_length", Kind::kGauge,
    "Calls waiting for the engine thread"};
inline constexpr Spec kDraftWorkerPasses = {
    "foretoken_draft_worker_passes_total", Kind::kCounter,
    "Forward passes of the draft model"};
inline constexpr Spec kDraftWorkerPassLatency = {
    "foretoken_draft_worker_pass_latency_seconds", Kind::kHistogram,
    "Time of a forward pass of the draft model", nullptr, kLatencyBounds};
inline constexpr Spec kDraftWorkerPassRows = {
    "foretoken_draft_worker_pass_rows", Kind::kHistogram,
    "Rows of a pass, all sessions together", nullptr, kRowBounds};
inline constexpr Spec kDraftWorkerTextRows = {
    "foretoken_draft_worker_text_rows_total", Kind::kCounter,
    "Rows that read committed text: prompts, and what no draft foresaw"};
inline constexpr Spec kDraftWorkerKeptRows = {
    "foretoken_draft_worker_kept_rows_total", Kind::kCounter,
    "Accepted draft tokens whose KV was kept from their draft"};
inline constexpr Spec kDraftWorkerPrefixReused = {
    "foretoken_draft_worker_prefix_reused_tokens_total", Kind::kCounter,
    "Prompt tokens taken from the prefix cache"};
inline constexpr Spec kDraftWorkerPages = {
    "foretoken_draft_worker_kv_pages", Kind::kGauge, "KV cache pages in all"};
inline constexpr Spec kDraftWorkerPagesFree = {
    "foretoken_draft_worker_kv_pages_free", Kind::kGauge,
    "KV cache pages that are unused or evictable at once"};
inline constexpr Spec kDraftWorkerDrafts = {
    "foretoken_draft_worker_drafts_total", Kind::kCounter,
    "Drafts answered that hold a token"};
inline constexpr Spec kDraftWorkerDraftTokens = {
    "foretoken_draft_worker_draft_tokens_total", Kind::kCounter,
    "Nodes of the drafts answered"};
inline constexpr Spec kDraftWorkerDraftLatency = {
    "foretoken_draft_worker_draft_latency_seconds", Kind::kHistogram,
    "From a round to its draft, inside the worker", nullptr, kLatencyBounds};
inline constexpr Spec kDraftWorkerPoolPhrases = {
    "foretoken_draft_worker_pool_phrases", Kind::kGauge,
    "Phrases in the working pools of all sessions"};
inline constexpr Spec kDraftWorkerPhrases = {
    "foretoken_draft_worker_phrases_total", Kind::kCounter,
    "Phrases of working pools: made by the lookahead branch, tried against "
    "the draft model, inspired, refined",
    "event"};
inline constexpr Spec kDraftWorkerPhraseTokens = {
    "foretoken_draft_worker_phrase_tokens_total", Kind::kCounter,
    "Tokens of tried phrases that the draft model agreed with"};

// What each service exports: every Spec stands in exactly one list.
inline constexpr const Spec* kOrchestratorMetrics[] = {
    &kRequests,          &kRequestsRunning,
    &kPromptTokens,      &kGenerationTokens,
    &kTimeToFirstToken,  &kInterTokenLatency,
    &kRequestLatency,    &kRounds,
    &kNumDrafts,         &kNumDraftTokens,
    &kNumAcceptedTokens, &kNumAcceptedPerPosition,
    &kDraftedByDrafter,  &kAcceptedByDrafter,
    &kDegradedRounds,    &kPhaseLatency,
    &kTreeNodes,         &kFailovers,
    &kDraftLatency,      &kBreakerState};
inline constexpr const Spec* kVerifierMetrics[] = {
    &kSessions,     &kStreams,     &kEngineQueue,   &kSessionsFailed,
    &kKvPagesTotal, &kKvPagesFree, &kKvPagesCached, &kPasses,
    &kPassLatency,  &kPassRows,    &kPrefixReused,  &kPreemptions,
    &kReplays};
inline constexpr const Spec* kDraftWorkerMetrics[] = {
    &kDraftWorkerStreams,        &kDraftWorkerSessions,
    &kDraftWorkerSessionsFailed, &kDraftWorkerMuted,
    &kDraftWorkerQueue,          &kDraftWorkerPasses,
    &kDraftWorkerPassLatency,    &kDraftWorkerPassRows,
    &kDraftWorkerTextRows,       &kDraftWorkerKeptRows,
    &kDraftWorkerPrefixReused,   &kDraftWorkerPages,
    &kDraftWorkerPagesFree,      &kDraftWorkerDrafts,
    &kDraftWorkerDraftTokens,    &kDraftWorkerDraftLatency,
    &kDraftWorkerPoolPhrases,    &kDraftWorkerPhrases,
    &kDraftWorkerPhraseTokens};
inline constexpr const Spec* kTrieDrafterMetrics[] = {
    &kTrieStreams,        &kTrieSessions,    &kTrieSessionBytes,
    &kTrieSessionsFailed, &kTrieRounds,      &kTrieNodes,
    &kTrieDraftLatency,   &kTrieScopes,      &kTrieScopesEvicted,
    &kTrieHistoryTokens,  &kTriePoolPhrases, &kTrieSharedBytes,
    &kTrieLookups,        &kWarmStart,       &kRedisUp};
inline constexpr const Spec* kCrestMetrics[] = {
    &kCrestStreams,      &kCrestLookups,     &kCrestLookupLatency,
    &kCrestCacheLookups, &kCrestVersion,     &kCrestReady,
    &kCrestSwitches,     &kCrestFailedLoads, &kCrestIngests};

struct Catalog {
  const char* service;  // its folder
  absl::Span<const Spec* const> metrics;
};

inline constexpr Catalog kCatalogs[] = {{"orchestrator", kOrchestratorMetrics},
                                        {"verifier", kVerifierMetrics},
                                        {"draft_worker", kDraftWorkerMetrics},
                                        {"trie_drafter", kTrieDrafterMetrics},
                                        {"crest", kCrestMetrics}};

}  // namespace foretoken::metrics

#endif  // FORETOKEN_COMMON_METRICS_CATALOG_H_
