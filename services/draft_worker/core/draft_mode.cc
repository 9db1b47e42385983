#include "services/draft_worker/core/draft_mode.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/draft_worker/core/chain_mode.h"
#include "services/draft_worker/core/ouroboros_mode.h"

namespace foretoken::draft_worker {

void DraftMode::Begin(absl::Span<const TokenId>, const DraftRoom& room) {
  room_ = room;
  chain_.clear();
  chain_rows_.clear();
  ended_ = false;
}

bool DraftMode::done() const {
  const int64_t length = static_cast<int64_t>(chain_.size());
  return ended_ || length >= std::min(gamma_, room_.max_nodes) ||
         length > room_.max_depth;
}

int32_t DraftMode::LayOutChain(int32_t root, PassRows& rows) {
  chain_rows_.clear();
  for (const TokenId token : chain_) {
    root = rows.Add(token, root);
    chain_rows_.push_back(root);
  }
  rows.outputs.push_back(root);
  return root;
}

bool DraftMode::Extend(TokenId token) {
  ended_ = token >= limits_.vocab_limit;
  if (ended_) return false;
  chain_.push_back(token);
  ended_ = std::find(limits_.end_tokens.begin(), limits_.end_tokens.end(),
                     token) != limits_.end_tokens.end();
  return true;
}

absl::StatusOr<std::unique_ptr<DraftMode>> MakeDraftMode(
    const Mode& mode, const ModeLimits& limits,
    absl::Span<const Phrase> warm_start) {
  FORETOKEN_RETURN_IF_ERROR(mode.CheckFits(
      {std::min(kMaxDraftNodes, limits.max_rows), limits.max_rows}));
  if (const auto* chain = mode.As<DraftModelOptions>()) {
    return std::make_unique<ChainMode>(chain->gamma, limits);
  }
  if (const auto* ouroboros = mode.As<OuroborosOptions>()) {
    return std::make_unique<OuroborosMode>(*ouroboros, limits, warm_start);
  }
  return absl::UnimplementedError(
      absl::StrCat("mode '", mode.name(),
                   "' is not drafted here, want draft_model or ouroboros"));
}

}  // namespace foretoken::draft_worker
