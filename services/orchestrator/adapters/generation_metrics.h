// The orchestrator's metrics. Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_GENERATION_METRICS_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_GENERATION_METRICS_H_

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/metrics/registry.h"
#include "common/speculation/modes.h"
#include "common/speculation/round.h"
#include "services/orchestrator/adapters/principal_metrics.h"
#include "services/orchestrator/core/generation_service.h"

namespace foretoken::orchestrator {

class GenerationMetrics final : public GenerationObserver {
 public:
  explicit GenerationMetrics(metrics::Registry& registry);

  void OnRequest() override { running_.Increment(); }
  void OnWaiting(int change) override { waiting_.Increment(change); }
  void OnRefused(Refusal reason) override {
    refused_[static_cast<size_t>(reason)]->Increment();
  }
  void OnMemory(MemoryPart part, int64_t used, int64_t limit) override {
    memory_[static_cast<size_t>(part)]->Set(static_cast<double>(used));
    memory_limit_[static_cast<size_t>(part)]->Set(static_cast<double>(limit));
  }
  void OnPrefill(const GenerationSummary& summary,
                 const ModeInfo& mode) override;
  void OnEmbedding(const GenerationSummary& summary) override {
    prompt_tokens_.Increment(static_cast<double>(summary.prompt_tokens));
  }
  void OnRound(const RoundReport& round, const ModeInfo& mode) override;
  void OnConstraint(ConstraintGrammar grammar, absl::Duration took) override {
    constraints_[static_cast<size_t>(grammar)]->Increment();
    if (grammar == ConstraintGrammar::kKept) return;
    constraint_compile_.Observe(absl::ToDoubleSeconds(took));
  }
  void OnFailovers(int64_t count) override;
  // `latency` is recorded only for served requests.
  void OnEnd(absl::StatusCode code, absl::Duration latency) override;
  CallerAccount& AccountOf(const Caller& caller) override {
    // Names of certificates are not a closed set, and the stand-in for a token
    // without a name must not be on a page that anyone may read.
    return principals_.Of(caller.named ? caller.name
                                       : PrincipalMetrics::kOther);
  }

 private:
  struct OfMode {
    prometheus::Counter* rounds;
    prometheus::Counter* accepted;
    prometheus::Counter* generated;
  };
  const OfMode& Of(const ModeInfo& mode) const {
    return modes_[&mode - ModeTable().data()];
  }

  metrics::Registry& registry_;
  metrics::CodeCounters ended_{registry_, metrics::kRequests,
                               metrics::CodeCounters::kWithOk};
  prometheus::Gauge& running_ = registry_.GetGauge(metrics::kRequestsRunning);
  prometheus::Gauge& waiting_ = registry_.GetGauge(metrics::kRequestsWaiting);
  std::array<prometheus::Counter*, kRefusalNames.size()> refused_;
  std::array<prometheus::Gauge*, kMemoryPartNames.size()> memory_;
  std::array<prometheus::Gauge*, kMemoryPartNames.size()> memory_limit_;
  prometheus::Counter& prompt_tokens_ =
      registry_.GetCounter(metrics::kPromptTokens);
  prometheus::Histogram& first_token_ =
      registry_.GetHistogram(metrics::kTimeToFirstToken);
  prometheus::Histogram& inter_token_ =
      registry_.GetHistogram(metrics::kInterTokenLatency);
  prometheus::Histogram& latency_ =
      registry_.GetHistogram(metrics::kRequestLatency);
  std::vector<OfMode> modes_;  // in the order of ModeTable
  prometheus::Counter& drafts_ = registry_.GetCounter(metrics::kNumDrafts);
  prometheus::Counter& draft_tokens_ =
      registry_.GetCounter(metrics::kNumDraftTokens);
  std::vector<prometheus::Counter*> accepted_at_;
  struct OfDrafter {
    prometheus::Counter* drafted;
    prometheus::Counter* accepted;
    prometheus::Counter* shortened;
    prometheus::Histogram* latency;
    // Indexed by outcome; null for outcomes that are not failures.
    std::array<prometheus::Counter*, kOutcomeNames.size()> degraded;
  };
  // By DrafterId; null for those that are never asked.
  std::array<OfDrafter, kDrafterNames.size()> drafters_ = {};
  prometheus::Histogram& draft_seconds_ =
      registry_.GetHistogram(metrics::kPhaseLatency, "draft");
  prometheus::Histogram& verify_seconds_ =
      registry_.GetHistogram(metrics::kPhaseLatency, "verify");
  prometheus::Histogram& tree_nodes_ =
      registry_.GetHistogram(metrics::kTreeNodes);
  std::array<prometheus::Counter*, kConstraintGrammarNames.size()> constraints_;
  prometheus::Histogram& constraint_compile_ =
      registry_.GetHistogram(metrics::kConstraintCompile);
  prometheus::Counter& failovers_ = registry_.GetCounter(metrics::kFailovers);
  PrincipalMetrics principals_{registry_};
};

inline GenerationMetrics::GenerationMetrics(metrics::Registry& registry)
    : registry_(registry) {
  for (size_t i = 0; i < refused_.size(); ++i) {
    refused_[i] =
        &registry.GetCounter(metrics::kRequestsRefused, kRefusalNames[i]);
  }
  for (size_t i = 0; i < memory_.size(); ++i) {
    memory_[i] =
        &registry.GetGauge(metrics::kRequestMemory, kMemoryPartNames[i]);
    memory_limit_[i] =
        &registry.GetGauge(metrics::kRequestMemoryLimit, kMemoryPartNames[i]);
  }
  for (size_t i = 0; i < constraints_.size(); ++i) {
    constraints_[i] =
        &registry.GetCounter(metrics::kConstraints, kConstraintGrammarNames[i]);
  }
  for (const ModeInfo& mode : ModeTable()) {
    OfMode counters{};
    if (mode.in_requests) {
      const std::string name(mode.name);
      counters = {&registry.GetCounter(metrics::kRounds, name),
                  &registry.GetCounter(metrics::kNumAcceptedTokens, name),
                  &registry.GetCounter(metrics::kGenerationTokens, name)};
    }
    modes_.push_back(counters);
  }
  for (int position = 0; position < metrics::kMaxPositions; ++position) {
    accepted_at_.push_back(&registry.GetCounter(
        metrics::kNumAcceptedPerPosition, absl::StrCat(position)));
  }
  for (const DrafterId id : kAskedDrafters) {
    const size_t i = static_cast<size_t>(id);
    const char* const name = DrafterName(id);
    drafters_[i].drafted =
        &registry.GetCounter(metrics::kDraftedByDrafter, name);
    drafters_[i].accepted =
        &registry.GetCounter(metrics::kAcceptedByDrafter, name);
    drafters_[i].shortened =
        &registry.GetCounter(metrics::kShortenedDrafts, name);
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

inline void GenerationMetrics::OnEnd(absl::StatusCode code,
                                     absl::Duration latency) {
  running_.Decrement();
  ended_.Increment(code);
  if (code == absl::StatusCode::kOk) {
    latency_.Observe(absl::ToDoubleSeconds(latency));
  }
}

inline void GenerationMetrics::OnPrefill(const GenerationSummary& summary,
                                         const ModeInfo& mode) {
  prompt_tokens_.Increment(static_cast<double>(summary.prompt_tokens));
  Of(mode).generated->Increment(static_cast<double>(summary.completion_tokens));
  first_token_.Observe(absl::ToDoubleSeconds(summary.time_to_first_token));
}

inline void GenerationMetrics::OnRound(const RoundReport& round,
                                       const ModeInfo& mode) {
  const OfMode& of_mode = Of(mode);
  of_mode.rounds->Increment();
  if (round.draft_nodes > 0) drafts_.Increment();
  draft_tokens_.Increment(round.draft_nodes);
  of_mode.accepted->Increment(static_cast<double>(round.accepted));
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
    if (source.shortened) drafter.shortened->Increment();
  }
  for (const int32_t source : round.path_drafters) {
    drafters_[static_cast<size_t>(round.sources[source].id)]
        .accepted->Increment();
  }
  of_mode.generated->Increment(static_cast<double>(round.shown));
  draft_seconds_.Observe(absl::ToDoubleSeconds(round.draft_time));
  verify_seconds_.Observe(absl::ToDoubleSeconds(round.verify_time));
  inter_token_.Observe(
      absl::ToDoubleSeconds(round.draft_time + round.verify_time) /
      static_cast<double>(round.accepted + 1));
  tree_nodes_.Observe(round.draft_nodes);
}

inline void GenerationMetrics::OnFailovers(int64_t count) {
  failovers_.Increment(static_cast<double>(count));
}

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_GENERATION_METRICS_H_
