#include "services/orchestrator/adapters/generation_metrics.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/rpc/status.h"

namespace foretoken::orchestrator {

namespace m = ::foretoken::metrics;

GenerationMetrics::GenerationMetrics(metrics::Registry& registry)
    : running_(registry.GetGauge(m::kRequestsRunning)),
      prompt_tokens_(registry.GetCounter(m::kPromptTokens, "")),
      generation_tokens_(registry.GetCounter(m::kGenerationTokens, "")),
      first_token_(registry.GetHistogram(m::kTimeToFirstToken, "")),
      inter_token_(registry.GetHistogram(m::kInterTokenLatency, "")),
      latency_(registry.GetHistogram(m::kRequestLatency, "")),
      rounds_(registry.GetCounter(m::kRounds, "")),
      drafts_(registry.GetCounter(m::kNumDrafts, "")),
      draft_tokens_(registry.GetCounter(m::kNumDraftTokens, "")),
      accepted_tokens_(registry.GetCounter(m::kNumAcceptedTokens, "")),
      draft_seconds_(registry.GetHistogram(m::kPhaseLatency, "draft")),
      verify_seconds_(registry.GetHistogram(m::kPhaseLatency, "verify")),
      tree_nodes_(registry.GetHistogram(m::kTreeNodes, "")),
      failovers_(registry.GetCounter(m::kFailovers, "")) {
  for (int code = 0; code <= 16; ++code) {
    const auto status_code = static_cast<absl::StatusCode>(code);
    ended_[status_code] =
        &registry.GetCounter(m::kRequests, rpc::CodeName(status_code));
  }
  for (int position = 0; position < m::kMaxPositions; ++position) {
    accepted_at_.push_back(&registry.GetCounter(m::kNumAcceptedPerPosition,
                                                absl::StrCat(position)));
  }
  for (const char* drafter : m::kDrafters) {
    drafted_by_[drafter] = &registry.GetCounter(m::kDraftedByDrafter, drafter);
    accepted_by_[drafter] =
        &registry.GetCounter(m::kAcceptedByDrafter, drafter);
    registry.GetCounter(m::kDegradedRounds, drafter);
  }
}

void GenerationMetrics::RequestStarted() { running_.Increment(); }

void GenerationMetrics::RequestEnded(absl::StatusCode code,
                                     absl::Duration latency) {
  running_.Decrement();
  ended_.at(code)->Increment();
  if (code == absl::StatusCode::kOk) {
    latency_.Observe(absl::ToDoubleSeconds(latency));
  }
}

void GenerationMetrics::Prefilled(const GenerationSummary& summary) {
  prompt_tokens_.Increment(static_cast<double>(summary.prompt_tokens));
  generation_tokens_.Increment(static_cast<double>(summary.completion_tokens));
  first_token_.Observe(absl::ToDoubleSeconds(summary.time_to_first_token));
}

void GenerationMetrics::RoundDone(int tree_nodes, const RoundResult& result,
                                  absl::Duration draft_time,
                                  absl::Duration verify_time,
                                  const GenerationSummary& before,
                                  const GenerationSummary& after) {
  rounds_.Increment();
  if (tree_nodes > 0) drafts_.Increment();
  draft_tokens_.Increment(static_cast<double>(after.drafted - before.drafted));
  const int64_t accepted = after.accepted - before.accepted;
  accepted_tokens_.Increment(static_cast<double>(accepted));
  for (int64_t i = 0; i < accepted; ++i) {
    accepted_at_[std::min<int64_t>(i, m::kMaxPositions - 1)]->Increment();
  }
  for (size_t i = 0; i < after.by_drafter.size(); ++i) {
    const DrafterCounts& now = after.by_drafter[i];
    const DrafterCounts& then = before.by_drafter[i];
    drafted_by_.at(now.name)->Increment(
        static_cast<double>(now.drafted - then.drafted));
    accepted_by_.at(now.name)->Increment(
        static_cast<double>(now.accepted - then.accepted));
  }
  generation_tokens_.Increment(
      static_cast<double>(after.completion_tokens - before.completion_tokens));
  draft_seconds_.Observe(absl::ToDoubleSeconds(draft_time));
  verify_seconds_.Observe(absl::ToDoubleSeconds(verify_time));
  inter_token_.Observe(absl::ToDoubleSeconds(draft_time + verify_time) /
                       static_cast<double>(result.tokens.size()));
  tree_nodes_.Observe(tree_nodes);
}

void GenerationMetrics::Failovers(int64_t count) {
  failovers_.Increment(static_cast<double>(count));
}

}  // namespace foretoken::orchestrator
