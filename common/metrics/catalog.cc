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
      &kTreeNodes,         &kFailovers};
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

}  // namespace foretoken::metrics
