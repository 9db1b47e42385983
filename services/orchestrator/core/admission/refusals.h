// Refusals: delivers the refusals of calls.
//
// Its status gets a hint when to retry, which follows the load, and callers who
// ignore hints wait for their refusals (retry_gate.h). A refusal is delivered
// by a thread of its own, so never from inside the call that was refused.
// Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ADMISSION_REFUSALS_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ADMISSION_REFUSALS_H_

#include <atomic>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/timer_thread.h"
#include "common/generation/generation.h"
#include "services/orchestrator/core/admission/retry_gate.h"

namespace foretoken::orchestrator {

class Refusals {
 public:
  using Ticket = TimerThread::Ticket;
  // When a caller who is refused now should try again. Thread-safe.
  using Hint = std::function<absl::Duration(const Caller&)>;
  using Deliver = std::function<void(const absl::Status&)>;

  Refusals(Hint hint, Clock clock)
      : hint_(std::move(hint)), clock_(clock), gate_(clock), timers_(clock) {}

  // `status`; a ResourceExhausted gets a retry hint, if it has none.
  absl::Status WithHint(const absl::Status& status, const Caller& caller) const;

  // Calls `deliver` once with the hinted status: soon, or for a caller whose
  // refusals are held, later, but before `deadline`. It must not block.
  Ticket End(const Caller& caller, absl::Time deadline,
             const absl::Status& status, Deliver deliver);
  // Delivers a refusal that is held now.
  void Hurry(const Ticket& ticket) { timers_.Hurry(ticket); }
  // Holds none from now on, and delivers those that are held.
  void StopHolding();
  // Refusals that are not delivered yet.
  int64_t active() const { return timers_.active(); }

 private:
  const Hint hint_;
  const Clock clock_;
  RetryGate gate_;
  std::atomic<bool> holds_{true};
  TimerThread timers_;  // last: what it runs may use all of the above
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ADMISSION_REFUSALS_H_
