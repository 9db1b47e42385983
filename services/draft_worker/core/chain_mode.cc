#include "services/draft_worker/core/chain_mode.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"

namespace foretoken::draft_worker {
namespace {

// A token that was drawn against the odds may still be the target's: both draw
// with the same noise.
constexpr float kLeastProbability = 1e-3f;

}  // namespace

ChainMode::ChainMode(int gamma, const ModeLimits& limits)
    : gamma_(gamma), limits_(limits) {
  FORETOKEN_CHECK(gamma >= 1 && gamma <= limits.max_rows);
}

void ChainMode::Begin(absl::Span<const TokenId>, const DraftRoom& room) {
  room_ = room;
  chain_.clear();
  probs_.clear();
  rows_.clear();
  ended_ = false;
}

void ChainMode::Resume(const DraftRoom& room) { room_ = room; }

bool ChainMode::done() const {
  const int64_t length = static_cast<int64_t>(chain_.size());
  return ended_ || length >= std::min(gamma_, room_.max_nodes) ||
         length > room_.max_depth;
}

void ChainMode::LayOut(int32_t root, PassRows& rows) {
  rows_.clear();
  for (const TokenId token : chain_) {
    root = rows.Add(token, root);
    rows_.push_back(root);
  }
  rows.outputs.push_back(root);
}

void ChainMode::Take(absl::Span<const SampledToken> outputs) {
  const SampledToken& drawn = outputs.back();  // no rows lie below the chain
  if (drawn.token >= limits_.vocab_limit) {
    ended_ = true;
    return;
  }
  const float before = probs_.empty() ? 1.0f : probs_.back();
  const float own = std::exp(drawn.logprob);
  chain_.push_back(drawn.token);
  // NaN, where the model says so, counts as the least.
  probs_.push_back(before * std::fmin(1.0f, std::fmax(kLeastProbability, own)));
  ended_ = std::find(limits_.end_tokens.begin(), limits_.end_tokens.end(),
                     drawn.token) != limits_.end_tokens.end();
}

void ChainMode::Finish(DraftTree& tree) {
  tree.Clear();
  const size_t nodes =
      std::min(chain_.size(), static_cast<size_t>(room_.max_nodes));
  for (size_t i = 0; i < nodes; ++i) {
    tree.Add(chain_[i], static_cast<int32_t>(i) - 1, probs_[i]);
  }
}

}  // namespace foretoken::draft_worker
