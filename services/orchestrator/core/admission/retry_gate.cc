#include "services/orchestrator/core/admission/retry_gate.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/retry_after.h"

namespace foretoken::orchestrator {

absl::Duration RetryGate::Hold(const std::string& caller, absl::Duration left,
                               absl::Status& status) {
  const std::optional<absl::Duration> hint = RetryAfter(status);
  if (!absl::IsResourceExhausted(status) || !hint.has_value()) {
    return absl::ZeroDuration();
  }
  const absl::Time now = clock_();
  absl::Duration hold;
  {
    absl::MutexLock lock(&mu_);
    // Only callers that are not known yet need room, so a table full of busy
    // callers still serves those.
    if (callers_.size() >= kMaxCallers && !callers_.contains(caller)) {
      absl::erase_if(callers_, [now](const auto& entry) {
        return entry.second.empty <= now;
      });
      if (callers_.size() >= kMaxCallers) return absl::ZeroDuration();
    }
    Refused& refused = callers_[caller];
    const absl::Duration leak_time = *hint / kPerHint;  // of one refusal
    const double level =
        refused.empty <= now
            ? 0
            : std::max(0.0,
                       refused.level -
                           absl::FDivDuration(now - refused.filled, leak_time));
    if (level > 0) hold = *hint * std::max(1.0, level / kPerHint);
    refused = {level + 1, now, now + (level + 1) * leak_time};
  }
  // Half of what is left: the answer has to travel, and the client may want to
  // try elsewhere.
  // The client shall hear the answer, not its deadline.
  hold = std::max(std::min({hold, kMaxHold, left / 2}), absl::ZeroDuration());
  status = WithRetryAfter(std::move(status), *hint - hold);
  return hold;
}

}  // namespace foretoken::orchestrator
