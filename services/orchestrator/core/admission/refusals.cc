#include "services/orchestrator/core/admission/refusals.h"

#include "common/base/retry_after.h"

namespace foretoken::orchestrator {

absl::Status Refusals::WithHint(const absl::Status& status,
                                const Caller& caller) const {
  if (!absl::IsResourceExhausted(status) || RetryAfter(status).has_value()) {
    return status;
  }
  return WithRetryAfter(status, hint_(caller));
}

Refusals::Ticket Refusals::End(const Caller& caller, absl::Time deadline,
                               const absl::Status& status, Deliver deliver) {
  absl::Status hinted = WithHint(status, caller);
  const absl::Time now = clock_();
  absl::Duration held = absl::ZeroDuration();
  if (holds_) held = gate_.Hold(caller.name, deadline - now, hinted);
  return timers_.RunAt(
      now + held, [hinted = std::move(hinted), deliver = std::move(deliver)] {
        deliver(hinted);
      });
}

void Refusals::StopHolding() {
  holds_ = false;
  timers_.HurryAll();
}

}  // namespace foretoken::orchestrator
