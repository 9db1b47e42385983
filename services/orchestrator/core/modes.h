// The drafters that a request's mode stands for.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_MODES_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_MODES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/drafting/drafter.h"
#include "common/spec/mode_spec.h"

namespace foretoken::orchestrator {

struct NamedDrafter {
  std::string name;  // as in statistics and metrics
  std::unique_ptr<Drafter> drafter;
};

// `off` has none. InvalidArgument for a mode that does not exist or parameters
// that it does not take; Unimplemented, by name, for one that this build does
// not serve.
absl::StatusOr<std::vector<NamedDrafter>> MakeDrafters(const ModeSpec& mode);

// The modes that MakeDrafters builds, in the order of the mode table.
std::vector<std::string> ServedModes();

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_MODES_H_
