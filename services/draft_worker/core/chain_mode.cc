#include "services/draft_worker/core/chain_mode.h"

#include <algorithm>

#include "common/base/check.h"

namespace foretoken::draft_worker {
ChainMode::ChainMode(int gamma, const ModeLimits& limits)
    : DraftMode(gamma, limits) {
  FORETOKEN_CHECK(gamma >= 1 && gamma <= limits.max_rows);
}

void ChainMode::Begin(absl::Span<const TokenId> text, const DraftRoom& room) {
  DraftMode::Begin(text, room);
  probs_.clear();
}

void ChainMode::Take(absl::Span<const SampledToken> outputs) {
  const SampledToken& drawn = outputs.back();  // no rows lie below the chain
  if (!Extend(drawn.token)) return;
  const float before = probs_.empty() ? 1.0f : probs_.back();
  // Along a chain probabilities multiply: a node is accepted only if all before
  // it are.
  probs_.push_back(before * ProbabilityOf(drawn));
}

void ChainMode::Finish(DraftTree& tree) {
  tree.Clear();
  // The chain may be longer than this round's room, since a draft that goes on
  // keeps its tokens.
  const size_t nodes =
      std::min(chain_.size(), static_cast<size_t>(room_.max_nodes));
  for (size_t i = 0; i < nodes; ++i) {
    tree.Add(chain_[i], static_cast<int32_t>(i) - 1, probs_[i]);
  }
}

}  // namespace foretoken::draft_worker
