// The draft worker's metrics; see catalog.h.
#ifndef FORETOKEN_COMMON_METRICS_DRAFT_WORKER_CATALOG_H_
#define FORETOKEN_COMMON_METRICS_DRAFT_WORKER_CATALOG_H_

#include "absl/types/span.h"
#include "common/metrics/catalog.h"

namespace foretoken::metrics {

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

absl::Span<const Spec* const> DraftWorkerCatalog();

}  // namespace foretoken::metrics

#endif  // FORETOKEN_COMMON_METRICS_DRAFT_WORKER_CATALOG_H_
