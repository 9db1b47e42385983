#include "tests/lab/model_replay/priced_rounds.h"

#include <cmath>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/speculation/round.h"
#include "services/orchestrator/core/drafters/draft_source.h"
#include "services/orchestrator/core/economics/draft_estimates.h"
#include "services/orchestrator/core/economics/pass_costs.h"

namespace foretoken::model_replay {

PricedRounds::PricedRounds(std::vector<Source> sources, PassTiming timing,
                           int32_t vocab_size, int max_tree_nodes)
    : sources_(std::move(sources)),
      vocab_size_(vocab_size),
      timing_(std::move(timing)) {
  options_.limits = {max_tree_nodes, max_tree_nodes};
  options_.economical = true;
  options_.estimates = std::make_shared<orchestrator::DraftEstimates>();
}

// Costs start from what the passes so far have cost.
absl::Status PricedRounds::Start(size_t, const RecordedTurn& turn) {
  std::vector<std::pair<int32_t, double>> costs;
  for (const PassTiming::Point& point : timing_.points()) {
    costs.emplace_back(static_cast<int32_t>(std::lround(point.rows)),
                       point.seconds * 1e3);
  }
  options_.costs = orchestrator::PassCosts(std::move(costs));
  orchestrator::DraftSources sources;
  for (const Source& source : sources_) {
    sources.push_back(std::make_unique<orchestrator::LocalSource>(
        source.id, source.drafter, MonotonicNow));
  }
  drafting_ = std::make_unique<orchestrator::RoundDrafting>(
      std::move(sources), vocab_size_, options_);
  DraftOpen open;
  open.prompt_length = static_cast<int64_t>(turn.prompt.size());
  text_.assign(turn.prompt.begin(), turn.prompt.end());
  drafting_->Start(open, turn.prompt);
  return absl::OkStatus();
}

absl::Status PricedRounds::Draft(DraftTree& tree) {
  const TokenTree& merged = drafting_->Draft();
  tree.tokens.assign(merged.tokens().begin(), merged.tokens().end());
  tree.parents.assign(merged.parents().begin(), merged.parents().end());
  tree.probs.assign(merged.probs().begin(), merged.probs().end());
  for (const Source& source : sources_) {
    FORETOKEN_RETURN_IF_ERROR(source.drafter->DraftStatus());
  }
  return absl::OkStatus();
}

absl::Status PricedRounds::Commit(absl::Span<const TokenId> tokens,
                                  const VerifiedRound* round) {
  RoundResult result;
  orchestrator::CommittedText committed;
  text_.insert(text_.end(), tokens.begin(), tokens.end());
  committed.text = text_;
  committed.tokens = tokens;
  committed.max_depth = options_.limits.max_draft_nodes;
  if (round != nullptr) {
    // The pass also had the row of the last committed token.
    timing_.Observe(round->draft_rows + 1, round->pass_time);
    result.stats.draft_rows = round->draft_rows;
    result.stats.accepted = round->accepted;
    result.stats.pass_rows = round->draft_rows + 1;
    result.stats.pass_sessions = 1;
    result.stats.pass_time = round->pass_time;
    committed.round = &result;
    committed.verify_time = round->pass_time;
  }
  drafting_->Commit(committed);
  return absl::OkStatus();
}

void PricedRounds::End() {
  // The request's sources use the drafters: end them first.
  drafting_.reset();
  for (const Source& source : sources_) source.drafter->EndRequest();
}

void PricedRounds::Forget() {
  for (const Source& source : sources_) source.drafter->ForgetShared();
  options_.estimates = std::make_shared<orchestrator::DraftEstimates>();
}

}  // namespace foretoken::model_replay
