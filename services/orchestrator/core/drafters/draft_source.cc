#include "services/orchestrator/core/drafters/draft_source.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace foretoken::orchestrator {

void KeepPhrases(std::vector<Phrase> phrases, std::vector<Phrase>& waiting) {
  constexpr size_t kMaxWaiting = 4096;
  phrases.resize(std::min(phrases.size(), kMaxWaiting - waiting.size()));
  std::move(phrases.begin(), phrases.end(), std::back_inserter(waiting));
}

LocalSource::LocalSource(DrafterId id, std::shared_ptr<Drafter> drafter,
                         Clock clock)
    : id_(id), drafter_(std::move(drafter)), clock_(std::move(clock)) {}

void LocalSource::Start(const DraftOpen&, absl::Span<const TokenId> text) {
  drafter_->StartRequest(text);
}

void LocalSource::Ask(const DraftRound& round, absl::Span<const TokenId>) {
  CommitRound(round, *drafter_);
  max_nodes_ = round.max_nodes;
}

// Drafts here and not in Ask: by now the remote sources are at work.
DraftOutcome LocalSource::Collect(absl::Time, SourceDraft& draft) {
  draft.Clear();
  if (max_nodes_ == 0) return DraftOutcome::kNotAsked;
  const absl::Time start = clock_();
  drafter_->Draft(max_nodes_, draft.tree);
  draft.latency = clock_() - start;
  return DraftOutcome::kAnswered;
}

}  // namespace foretoken::orchestrator
