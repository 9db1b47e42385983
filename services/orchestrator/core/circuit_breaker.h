// CircuitBreaker: leaves a service alone that keeps failing, and finds out when
// it is back.
//
//   closed --(failures in a row, or too large a share of them)--> open
//   open --(back-off over)--> half-open: one probe at a time
//   half-open --(an answer)--> closed;  --(probe failed)--> open, longer
//
// What counts: any answer is a success, in time or not; a stream that broke, a
// refusal or nonsense is a failure. An answer that is merely late is neither.
// Rounds wait for a few passes of the target at most, and a service that
// prefills a long prompt or serves many sessions is slower than that and still
// well: whoever waited in vain asks it less often, the others go on. What tells
// a hung service from a slow one is that it answers nobody: once asks have come
// due for `silence` and nothing was heard by any request, every further late
// one is a failure. A pause without asks is no silence.
//
// A failure counts where its stream was found worth trying: what breaks of
// streams from before the breaker last opened, or of probes that were given up,
// says nothing of the service as it is now. So every leave to ask comes with
// the breaker's era, which the failure hands back.
//
// Back-offs double up to a bound and are spread by a random share, so that the
// replicas of an orchestrator do not probe together. One object for all
// requests that use the service. Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_CIRCUIT_BREAKER_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_CIRCUIT_BREAKER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace foretoken::orchestrator {

struct CircuitBreakerOptions {
  int failures_in_a_row = 5;
  // Of the last outcomes, `window` to twice as many.
  double failure_share = 0.5;
  int window = 40;
  // Longer than any round waits.
  absl::Duration silence = absl::Seconds(2);
  absl::Duration first_backoff = absl::Milliseconds(500);
  absl::Duration max_backoff = absl::Seconds(30);
  double jitter = 0.2;  // a back-off is between 1 - jitter and 1 times itself
};

class CircuitBreaker {
 public:
  enum class State { kClosed = 0, kHalfOpen = 1, kOpen = 2 };
  using Listener = std::function<void(State)>;

  // `random` gives numbers in [0, 1). `listener` is told of every new state,
  // under the breaker's lock.
  CircuitBreaker(const CircuitBreakerOptions& options, Clock clock,
                 std::function<double()> random, Listener listener = nullptr)
      : options_(options),
        clock_(std::move(clock)),
        random_(std::move(random)),
        listener_(std::move(listener)) {}

  // The era, if the service may be asked now. A probe of which nothing is heard
  // has failed when its back-off is over, and the next one follows.
  std::optional<int64_t> Allow() ABSL_LOCKS_EXCLUDED(mu_);
  // The same of a breaker that is closed, but never a probe.
  std::optional<int64_t> AllowAhead() const ABSL_LOCKS_EXCLUDED(mu_);
  void Success() ABSL_LOCKS_EXCLUDED(mu_);
  // Of an ask that was allowed in `era`.
  void Failure(int64_t era) ABSL_LOCKS_EXCLUDED(mu_);
  // An answer is due and not there.
  void Late() ABSL_LOCKS_EXCLUDED(mu_);

  State state() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void FailureLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Open() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Become(State state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Count(bool failed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Forget() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const CircuitBreakerOptions options_;
  const Clock clock_;
  const std::function<double()> random_;
  const Listener listener_;

  mutable absl::Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kClosed;
  int64_t era_ ABSL_GUARDED_BY(mu_) = 0;  // times it opened, probes given up
  int in_a_row_ ABSL_GUARDED_BY(mu_) = 0;
  // Recent ones; halved at twice the window.
  int outcomes_ ABSL_GUARDED_BY(mu_) = 0;
  int failures_ ABSL_GUARDED_BY(mu_) = 0;
  // The first and the latest late ask since something was heard.
  absl::Time silent_since_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  absl::Time last_late_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::Duration backoff_ ABSL_GUARDED_BY(mu_);
  absl::Time next_probe_ ABSL_GUARDED_BY(mu_);
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_CIRCUIT_BREAKER_H_
