#include "services/orchestrator/core/retry_gate.h"

#include <algorithm>
#include <optional>

#include "common/base/retry_after.h"

namespace foretoken::orchestrator {

absl::Duration RetryGate::Hold(const std::string& caller,
                               const absl::Status& status) {
  const std::optional<absl::Duration> hint = RetryAfter(status);
  if (!absl::IsResourceExhausted(status) || !hint.has_value()) {
    return absl::ZeroDuration();
  }
  const absl::Time now = clock_();
  absl::MutexLock lock(&mu_);
  if (callers_.size() >= kMaxCallers && !callers_.contains(caller)) {
    absl::erase_if(callers_, [now](const auto& entry) {
      return entry.second.until <= now;
    });
    if (callers_.size() >= kMaxCallers) return absl::ZeroDuration();
  }
  Refused& refused = callers_[caller];
  if (refused.until <= now) {
    refused = {now + *hint, *hint};
    return absl::ZeroDuration();
  }
  const absl::Duration hold = std::min(refused.hold, kMaxHold);
  refused.hold = 2 * hold;
  // It is due again when this answer has reached it and its hint is over.
  refused.until = std::max(refused.until, now + hold);
  return hold;
}

}  // namespace foretoken::orchestrator
