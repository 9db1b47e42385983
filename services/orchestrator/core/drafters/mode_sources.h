// The drafters that a request's mode stands for.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFTERS_MODE_SOURCES_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFTERS_MODE_SOURCES_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/speculation/modes.h"
#include "services/orchestrator/core/drafters/draft_services.h"
#include "services/orchestrator/core/round/round_drafting.h"

namespace foretoken::orchestrator {

struct ModeContext {
  DraftServices* services = nullptr;  // null: none
  TreeLimits limits;
  Clock clock = MonotonicClock();
  // Whether the request was cancelled; null: it never is.
  std::function<bool()> cancelled = nullptr;
};

struct ModeSources {
  DraftSources sources;
  bool economical = false;  // as RoundDrafting means it
};

// `off` has no sources. InvalidArgument names the parameter if the mode exceeds
// the limits; Unimplemented names a mode whose service is not configured.
absl::StatusOr<ModeSources> MakeSources(const Mode& mode,
                                        const ModeContext& context);

// The names of the modes that MakeSources builds, in the order of the table.
std::vector<std::string> ServedModes(const DraftServices* services);

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFTERS_MODE_SOURCES_H_
