#include "services/draft_worker/core/draft_mode.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "services/draft_worker/core/chain_mode.h"
#include "services/draft_worker/core/ouroboros_mode.h"
#include "services/draft_worker/core/tree_mode.h"

namespace foretoken::draft_worker {
namespace {

// The shape of Ouroboros that follows from prices: where rows are nearly free,
// the paper's width, as far as a pass has room for it.
OuroborosOptions ShapeByPrice(const ModeLimits& limits) {
  OuroborosOptions narrow = OuroborosOptions::ByPrice();
  const OuroborosOptions paper;
  OuroborosOptions wide = narrow;
  wide.window = wide.lookahead = paper.window;
  wide.suffixes = paper.suffixes;
  wide.inspiration = wide.refinement = true;
  // The paper's width costs nothing where rows do not, as on a GPU with few
  // sessions.
  if (limits.free_rows && wide.MaxRows() <= limits.max_rows) return wide;
  // Without room for them, fewer and shorter phrases, and then shorter chains.
  while (narrow.MaxRows() > limits.max_rows && narrow.window > 1) {
    --narrow.window;
  }
  while (narrow.MaxRows() > limits.max_rows && narrow.beta > 2) --narrow.beta;
  narrow.gamma = std::clamp(limits.max_rows - (narrow.MaxRows() - narrow.gamma),
                            1, narrow.gamma);
  return narrow;
}

}  // namespace

void DraftMode::Begin(absl::Span<const TokenId>, const DraftRoom& room) {
  room_ = room;
  chain_.clear();
  chain_rows_.clear();
  ended_ = false;
}

bool DraftMode::done() const {
  const int64_t length = static_cast<int64_t>(chain_.size());
  // A node at depth d needs position length + d.
  return ended_ || length >= std::min(gamma_, room_.max_nodes) ||
         length > room_.max_depth;
}

int32_t DraftMode::LayOutChain(int32_t root, int32_t kept, PassRows& rows) {
  chain_rows_.clear();
  for (const TokenId token : absl::MakeConstSpan(chain_).subspan(kept)) {
    root = rows.Add(token, root);
    chain_rows_.push_back(root);
  }
  FORETOKEN_CHECK(root != kRootParent);
  rows.outputs.push_back(root);
  return root;
}

bool DraftMode::Extend(TokenId token) {
  // The tokenizer has no text for tokens at or above the limit.
  ended_ = token >= limits_.vocab_limit;
  if (ended_) return false;
  chain_.push_back(token);
  // An end token may be drafted, but nothing after it.
  ended_ = EndsText(token);
  return true;
}

bool DraftMode::EndsText(TokenId token) const {
  const auto& ends = limits_.end_tokens;
  return std::find(ends.begin(), ends.end(), token) != ends.end();
}

float DraftMode::ProbabilityOf(const SampledToken& drawn) {
  // An unlikely draw may still be the target's token, since both draw with the
  // same noise. A NaN logprob counts as the floor.
  constexpr float kLeast = 1e-3f;
  return std::fmin(1.0f, std::fmax(kLeast, std::exp(drawn.logprob)));
}

absl::StatusOr<std::unique_ptr<DraftMode>> MakeDraftMode(
    const Mode& mode, const ModeLimits& limits,
    absl::Span<const Phrase> warm_start) {
  const TreeLimits room = {std::min(kMaxDraftNodes, limits.max_rows),
                           limits.max_rows};
  if (mode.As<AutoOptions>() != nullptr) {
    return std::make_unique<TreeMode>(limits);
  }
  const auto* chain = mode.As<DraftModelOptions>();
  if (chain != nullptr && !chain->gamma.has_value()) {
    return std::make_unique<TreeMode>(limits);
  }
  const auto* ouroboros = mode.As<OuroborosOptions>();
  if (ouroboros != nullptr && ouroboros->by_price) {
    return std::make_unique<OuroborosMode>(ShapeByPrice(limits), limits,
                                           warm_start);
  }
  FORETOKEN_RETURN_IF_ERROR(mode.CheckFits(room));
  if (chain != nullptr) {
    return std::make_unique<ChainMode>(*chain->gamma, limits);
  }
  if (ouroboros != nullptr) {
    return std::make_unique<OuroborosMode>(*ouroboros, limits, warm_start);
  }
  return absl::UnimplementedError(absl::StrCat(
      "mode '", mode.name(),
      "' is not drafted here, want draft_model, ouroboros or auto"));
}

}  // namespace foretoken::draft_worker
