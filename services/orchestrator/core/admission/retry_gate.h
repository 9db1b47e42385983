// RetryGate: callers that are refused again and again wait for their refusals.
//
// A refusal carries a hint when to retry. A client that ignores it would cost
// more by its refusals than by its requests: each is received, checked and
// answered. So while the refusals of a caller have not leaked away (each takes
// a kPerHint-th of its hint), the next are held for the time of their hints,
// which then say so much less: who obeys hints loses nothing. A caller with
// more than kPerHint refusals in the time of a hint waits longer in proportion,
// at most kMaxHold. The calls that it may have open are bounded anyway.
//
// Source: a leaky bucket (Turner, "New directions in communications", IEEE
// Communications Magazine, 1986).
// Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ADMISSION_RETRY_GATE_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ADMISSION_RETRY_GATE_H_

#include <cstddef>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace foretoken::orchestrator {

class RetryGate {
 public:
  static constexpr absl::Duration kMaxHold = absl::Seconds(1);
  static constexpr double kPerHint = 16;
  // Callers remembered; without room for more, new ones are not held.
  static constexpr size_t kMaxCallers = 4096;

  explicit RetryGate(Clock clock = MonotonicClock())
      : clock_(std::move(clock)) {}

  // How long the answer `status` to a call of `caller` is held, of which the
  // caller has `left` until its deadline: not at all unless it is a refusal
  // with a retry hint. Takes the time off the hint.
  absl::Duration Hold(const std::string& caller, absl::Duration left,
                      absl::Status& status);

 private:
  struct Refused {
    double level = 0;  // refusals, at `filled`; kPerHint leak in each hint
    absl::Time filled;
    absl::Time empty;  // when there is none left
  };

  const Clock clock_;
  absl::Mutex mu_;
  absl::flat_hash_map<std::string, Refused> callers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ADMISSION_RETRY_GATE_H_
