#include "services/orchestrator/core/modes.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/drafting/drafter_factory.h"

namespace foretoken::orchestrator {
namespace {

// In the order of the mode table; the first two are served.
constexpr std::array<absl::string_view, 8> kModes = {
    "off",       "prompt_lookup", "draft_model", "lookahead",
    "ouroboros", "ngram_trie",    "crest",       "auto"};
constexpr size_t kServed = 2;

}  // namespace

absl::StatusOr<std::vector<NamedDrafter>> MakeDrafters(const ModeSpec& mode) {
  const auto found = std::find(kModes.begin(), kModes.end(), mode.name());
  if (found == kModes.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown mode '", mode.name(), "', want one of ",
                     absl::StrJoin(kModes, " ")));
  }
  if (static_cast<size_t>(found - kModes.begin()) >= kServed) {
    return absl::UnimplementedError(
        absl::StrCat("mode '", mode.name(), "' is not served here"));
  }
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<Drafter> drafter,
                             MakeDrafter(mode, DrafterResources()));
  std::vector<NamedDrafter> drafters;
  if (mode.name() != "off") {
    drafters.push_back({mode.name(), std::move(drafter)});
  }
  return drafters;
}

std::vector<std::string> ServedModes() {
  return std::vector<std::string>(kModes.begin(), kModes.begin() + kServed);
}

}  // namespace foretoken::orchestrator
