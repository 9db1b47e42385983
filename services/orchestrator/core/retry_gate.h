// RetryGate: refused callers that come back too early wait.
//
// A refusal carries a hint when to retry. A client that ignores it would cost
// more by its refusals than by its requests: each is received, checked and
// answered. So the answer to a refusal within the time of the last hint is held
// for as long as its own hint says, and twice as long with each that comes too
// early, at most kMaxHold. A client that waits for answers slows down to that
// pace, and its open calls are bounded anyway.
// Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_RETRY_GATE_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_RETRY_GATE_H_

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
  // Callers remembered; without room for more, new ones are not held.
  static constexpr size_t kMaxCallers = 4096;

  explicit RetryGate(Clock clock = MonotonicClock())
      : clock_(std::move(clock)) {}

  // How long the answer `status` to a call of `caller` is held: not at all
  // unless it is a refusal with a retry hint.
  absl::Duration Hold(const std::string& caller, const absl::Status& status);

 private:
  const Clock clock_;
  absl::Mutex mu_;
  struct Refused {
    absl::Time until = absl::InfinitePast();  // when the last hint is over
    absl::Duration hold;                      // of the next early answer
  };
  absl::flat_hash_map<std::string, Refused> callers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_RETRY_GATE_H_
