#include "services/orchestrator/core/drafters/mode_sources.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/drafting/drafter_factory.h"
#include "services/orchestrator/core/round/lookahead.h"

namespace foretoken::orchestrator {
namespace {

bool HasServiceOf(const ModeInfo& mode, const DraftServices* services) {
  return services != nullptr && services->Has(mode.service);
}

bool IsServed(const ModeInfo& mode, const DraftServices* services) {
  return !mode.needs_service || HasServiceOf(mode, services);
}

// Drafts in the request's own thread.
absl::StatusOr<std::unique_ptr<DraftSource>> MakeLocal(const Mode& mode,
                                                       const Clock& clock) {
  if (const auto* lookahead = mode.As<LookaheadOptions>()) {
    return std::make_unique<LookaheadSource>(*lookahead);
  }
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<Drafter> drafter,
                             MakeDrafter(mode, DrafterResources()));
  return std::make_unique<LocalSource>(mode.info().drafter, std::move(drafter),
                                       clock);
}

}  // namespace

absl::StatusOr<ModeSources> MakeSources(const Mode& mode,
                                        const ModeContext& context) {
  FORETOKEN_RETURN_IF_ERROR(mode.CheckFits(context.limits));
  const ModeInfo& info = mode.info();
  DraftServices* const services = context.services;
  if (!IsServed(info, services)) {
    return absl::UnimplementedError(
        absl::StrCat("mode '", mode.name(), "' is not served here: its ",
                     info.service, " service is not configured; served are ",
                     absl::StrJoin(ServedModes(services), " ")));
  }
  ModeSources made;
  made.economical = mode.As<AutoOptions>() != nullptr;
  for (const ModeInfo& part : ModeTable()) {
    // Parts come in the order of the table, which decides ties between
    // drafts of equal chance.
    if (!made.economical || !part.in_auto) continue;
    if (!HasServiceOf(part, services)) continue;
    made.sources.push_back(services->PartOfAuto(part, context.cancelled));
  }
  if (HasServiceOf(info, services)) {
    made.sources.push_back(services->Source(mode, context.cancelled));
  } else if (mode.As<OffOptions>() == nullptr) {
    FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<DraftSource> source,
                               MakeLocal(mode, context.clock));
    made.sources.push_back(std::move(source));
  }
  if (mode.As<OuroborosOptions>() != nullptr) {
    auto keeper = services->PhraseKeeper(mode);
    if (keeper != nullptr) made.sources.push_back(std::move(keeper));
  }
  return made;
}

std::vector<std::string> ServedModes(const DraftServices* services) {
  std::vector<std::string> served;
  for (const ModeInfo& mode : ModeTable()) {
    if (mode.in_requests && IsServed(mode, services)) {
      served.emplace_back(mode.name);
    }
  }
  return served;
}

}  // namespace foretoken::orchestrator
