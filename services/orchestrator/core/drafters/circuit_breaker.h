// CircuitBreaker: stops requests to a service that keeps failing, and probes
// for its recovery.
//
//   closed --(failures in a row, or too large a share of them)--> open
//   open --(back-off over)--> half-open: one probe at a time
//   half-open --(an answer)--> closed;  --(probe failed)--> open, longer
//
// Outcomes: any answer is a success, in time or not; a broken stream, a refusal
// or an invalid answer is a failure. A missed deadline alone is neither: a
// service that prefills a long prompt or serves many sessions may be slow and
// still healthy. A request whose answers are late asks less often, the others
// continue. Unlike a slow service, a hung one answers no request: once answers
// have been overdue for `silence` and none has arrived for any request, every
// further overdue one is a failure. A pause without asks does not count as
// silence; the time that an ask was waited for does.
//
// Allow returns the breaker's epoch, and Failure takes it back. Failures of
// calls admitted in an earlier epoch (before the breaker last opened, or by a
// probe that was given up) are ignored: they say nothing about the service now.
//
// Back-offs double up to a maximum and are randomized, so that the replicas of
// an orchestrator do not probe together. One object serves all requests that
// use the service. Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFTERS_CIRCUIT_BREAKER_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFTERS_CIRCUIT_BREAKER_H_

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
  // Failure share of the last `window` to 2 * `window` outcomes that opens it.
  double failure_share = 0.5;
  int window = 40;
  absl::Duration silence = absl::Seconds(2);
  absl::Duration first_backoff = absl::Milliseconds(500);
  absl::Duration max_backoff = absl::Seconds(30);
  double jitter = 0.2;  // back-offs are scaled by 1 - jitter to 1
};

class CircuitBreaker {
 public:
  enum class State { kClosed = 0, kHalfOpen = 1, kOpen = 2 };
  using Listener = std::function<void(State)>;

  // `random` returns numbers in [0, 1). `listener` is called with every new
  // state, under the breaker's lock.
  CircuitBreaker(const CircuitBreakerOptions& options, Clock clock,
                 std::function<double()> random, Listener listener = nullptr)
      : options_(options),
        clock_(std::move(clock)),
        random_(std::move(random)),
        listener_(std::move(listener)) {}

  // Returns the epoch if the service may be asked now. A probe without an
  // answer has failed when its back-off ends, and the next one follows.
  std::optional<int64_t> Allow() ABSL_LOCKS_EXCLUDED(mu_);
  // As Allow, but only while closed: never starts a probe.
  std::optional<int64_t> AllowAhead() const ABSL_LOCKS_EXCLUDED(mu_);
  // Whether Allow would start a probe now.
  bool MayProbe() const ABSL_LOCKS_EXCLUDED(mu_);
  void Success() ABSL_LOCKS_EXCLUDED(mu_);
  // Reports the failure of an ask that was allowed in `epoch`.
  void Failure(int64_t epoch) ABSL_LOCKS_EXCLUDED(mu_);
  // Reports an overdue answer, for which a round has waited this long.
  void Late(absl::Duration waited = absl::ZeroDuration())
      ABSL_LOCKS_EXCLUDED(mu_);

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
  int64_t epoch_ ABSL_GUARDED_BY(mu_) = 0;  // times opened + probes given up
  int in_a_row_ ABSL_GUARDED_BY(mu_) = 0;
  // Counts of recent outcomes; halved at twice the window.
  int outcomes_ ABSL_GUARDED_BY(mu_) = 0;
  int failures_ ABSL_GUARDED_BY(mu_) = 0;
  // The first and the latest overdue answer since the last success.
  absl::Time silent_since_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  absl::Time last_late_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::Duration backoff_ ABSL_GUARDED_BY(mu_);
  absl::Time next_probe_ ABSL_GUARDED_BY(mu_);
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFTERS_CIRCUIT_BREAKER_H_
