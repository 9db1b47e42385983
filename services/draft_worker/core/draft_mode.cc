#include "services/draft_worker/core/draft_mode.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "services/draft_worker/core/chain_mode.h"
#include "services/draft_worker/core/ouroboros_mode.h"

namespace foretoken::draft_worker {
namespace {

// The tree of `auto` holds the phrases of the request's text anyway. With the
// demo pair two of them in a pass are as good as six, a suffix helps, and a
// lookahead, inspiration and refinement add less than they cost
// (bench_draft_worker, modes auto+...).
constexpr char kShapeInAuto[] =
    "ouroboros:gamma=8,window=2,beta=4,suffixes=1,lookahead=0,context=1,"
    "inspiration=0,refinement=0,warm_start=0";

}  // namespace

void DraftMode::Begin(absl::Span<const TokenId>, const DraftRoom& room) {
  room_ = room;
  chain_.clear();
  chain_rows_.clear();
  ended_ = false;
}

double DraftMode::FurtherGain() const {
  return std::numeric_limits<double>::infinity();
}

bool DraftMode::done() const {
  const int64_t length = static_cast<int64_t>(chain_.size());
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
  ended_ = token >= limits_.vocab_limit;
  if (ended_) return false;
  chain_.push_back(token);
  ended_ = std::find(limits_.end_tokens.begin(), limits_.end_tokens.end(),
                     token) != limits_.end_tokens.end();
  return true;
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
    FORETOKEN_ASSIGN_OR_RETURN(const Mode shape, Mode::Parse(kShapeInAuto));
    FORETOKEN_RETURN_IF_ERROR(shape.CheckFits(room));
    return std::make_unique<OuroborosMode>(*shape.As<OuroborosOptions>(),
                                           limits, warm_start,
                                           /*weighs_passes=*/true);
  }
  FORETOKEN_RETURN_IF_ERROR(mode.CheckFits(room));
  if (const auto* chain = mode.As<DraftModelOptions>()) {
    return std::make_unique<ChainMode>(chain->gamma, limits);
  }
  if (const auto* ouroboros = mode.As<OuroborosOptions>()) {
    return std::make_unique<OuroborosMode>(*ouroboros, limits, warm_start);
  }
  return absl::UnimplementedError(absl::StrCat(
      "mode '", mode.name(),
      "' is not drafted here, want draft_model, ouroboros or auto"));
}

}  // namespace foretoken::draft_worker
