// Factory of the drafters that run in the caller's thread, by mode.
#ifndef FORETOKEN_COMMON_DRAFTING_DRAFTER_FACTORY_H_
#define FORETOKEN_COMMON_DRAFTING_DRAFTER_FACTORY_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/drafting/drafter.h"
#include "common/speculation/modes.h"

namespace foretoken {

class CrestSource;
class StaticPrior;

// Resources of a drafter in addition to the request itself.
struct DrafterResources {
  std::shared_ptr<const StaticPrior> prior;  // null: none
  std::shared_ptr<CrestSource> crest;        // `crest` needs it
  // Committed output of a request is kept for later requests.
  bool keep_history = false;
  // AddHistory will be called, even without keep_history.
  bool preloaded_history = false;
};

// InvalidArgument, naming the mode, for one that drafts with a model;
// FailedPrecondition for a mode whose resource is missing.
absl::StatusOr<std::unique_ptr<Drafter>> MakeDrafter(
    const Mode& mode, const DrafterResources& resources);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_DRAFTER_FACTORY_H_
