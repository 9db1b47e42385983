#include "common/metrics/draft_worker_catalog.h"

namespace foretoken::metrics {

absl::Span<const Spec* const> DraftWorkerCatalog() {
  static constexpr const Spec* kAll[] = {
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
  return kAll;
}

}  // namespace foretoken::metrics
