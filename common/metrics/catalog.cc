#include "common/metrics/catalog.h"

namespace foretoken::metrics {

absl::Span<const Spec* const> OrchestratorCatalog() {
  static constexpr const Spec* kAll[] = {
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
  return kAll;
}

absl::Span<const Spec* const> VerifierCatalog() {
  static constexpr const Spec* kAll[] = {
      &kSessions,     &kStreams,     &kEngineQueue,   &kSessionsFailed,
      &kKvPagesTotal, &kKvPagesFree, &kKvPagesCached, &kPasses,
      &kPassLatency,  &kPassRows,    &kPrefixReused,  &kPreemptions,
      &kReplays};
  return kAll;
}

absl::Span<const Spec* const> CrestCatalog() {
  static constexpr const Spec* kAll[] = {
      &kCrestStreams,      &kCrestLookups,     &kCrestLookupLatency,
      &kCrestCacheLookups, &kCrestVersion,     &kCrestReady,
      &kCrestSwitches,     &kCrestFailedLoads, &kCrestIngests};
  return kAll;
}

absl::Span<const Spec* const> TrieDrafterCatalog() {
  static constexpr const Spec* kAll[] = {
      &kTrieStreams,        &kTrieSessions,    &kTrieSessionBytes,
      &kTrieSessionsFailed, &kTrieRounds,      &kTrieNodes,
      &kTrieDraftLatency,   &kTrieScopes,      &kTrieScopesEvicted,
      &kTrieHistoryTokens,  &kTriePoolPhrases, &kTrieSharedBytes,
      &kTrieLookups,        &kWarmStart,       &kRedisUp};
  return kAll;
}

}  // namespace foretoken::metrics
