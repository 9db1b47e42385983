#include "services/orchestrator/adapters/generation_metrics.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace foretoken::orchestrator {

GenerationMetrics::GenerationMetrics(metrics::Registry& registry)
    : registry_(registry) {
  for (int position = 0; position < metrics::kMaxPositions; ++position) {
    accepted_at_.push_back(&registry.GetCounter(
        metrics::kNumAcceptedPerPosition, absl::StrCat(position)));
  }
  for (size_t i = 0; i < drafters_.size(); ++i) {
    const char* const name = kDrafterNames[i];
    drafters_[i].drafted =
        &registry.GetCounter(metrics::kDraftedByDrafter, name);
    drafters_[i].accepted =
        &registry.GetCounter(metrics::kAcceptedByDrafter, name);
    drafters_[i].latency = &registry.GetHistogram(metrics::kDraftLatency, name);
    for (size_t outcome = 0; outcome < kOutcomeNames.size(); ++outcome) {
      const bool degraded = IsDegraded(static_cast<DraftOutcome>(outcome));
      drafters_[i].degraded[outcome] =
          degraded ? &registry.GetCounter(metrics::kDegradedRounds, name,
                                          kOutcomeNames[outcome])
                   : nullptr;
    }
  }
}

void GenerationMetrics::OnEnd(absl::StatusCode code, absl::Duration latency) {
  running_.Decrement();
  ended_.Increment(code);
  if (code == absl::StatusCode::kOk) {
    latency_.Observe(absl::ToDoubleSeconds(latency));
  }
}

void GenerationMetrics::OnPrefill(const GenerationSummary& summary) {
  prompt_tokens_.Increment(static_cast<double>(summary.prompt_tokens));
  generation_tokens_.Increment(static_cast<double>(summary.completion_tokens));
  first_token_.Observe(absl::ToDoubleSeconds(summary.time_to_first_token));
}

void GenerationMetrics::OnRound(const RoundReport& round) {
  rounds_.Increment();
  if (round.draft_nodes > 0) drafts_.Increment();
  draft_tokens_.Increment(round.draft_nodes);
  accepted_tokens_.Increment(static_cast<double>(round.accepted));
  for (int64_t i = 0; i < round.accepted; ++i) {
    accepted_at_[std::min<int64_t>(i, metrics::kMaxPositions - 1)]->Increment();
  }
  for (const SourceReport& source : round.sources) {
    const OfDrafter& drafter = drafters_[static_cast<size_t>(source.id)];
    drafter.drafted->Increment(source.nodes);
    if (source.outcome == DraftOutcome::kAnswered) {
      drafter.latency->Observe(absl::ToDoubleSeconds(source.latency));
    }
    prometheus::Counter* const degraded =
        drafter.degraded[static_cast<size_t>(source.outcome)];
    if (degraded != nullptr) degraded->Increment();
  }
  for (const int32_t source : round.path_drafters) {
    drafters_[static_cast<size_t>(round.sources[source].id)]
        .accepted->Increment();
  }
  generation_tokens_.Increment(static_cast<double>(round.shown));
  draft_seconds_.Observe(absl::ToDoubleSeconds(round.draft_time));
  verify_seconds_.Observe(absl::ToDoubleSeconds(round.verify_time));
  inter_token_.Observe(
      absl::ToDoubleSeconds(round.draft_time + round.verify_time) /
      static_cast<double>(round.accepted + 1));
  tree_nodes_.Observe(round.draft_nodes);
}

void GenerationMetrics::OnFailovers(int64_t count) {
  failovers_.Increment(static_cast<double>(count));
}

}  // namespace foretoken::orchestrator
