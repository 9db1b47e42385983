#include "services/draft_worker/core/draft_mode.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/draft_worker/core/chain_mode.h"
#include "services/draft_worker/core/ouroboros_mode.h"

namespace foretoken::draft_worker {
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
