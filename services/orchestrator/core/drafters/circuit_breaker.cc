#include "services/orchestrator/core/drafters/circuit_breaker.h"

#include <algorithm>

namespace foretoken::orchestrator {

CircuitBreaker::State CircuitBreaker::state() const {
  absl::MutexLock lock(&mu_);
  return state_;
}

void CircuitBreaker::Become(State state) {
  if (state_ == state) return;
  state_ = state;
  if (listener_) listener_(state);
}

void CircuitBreaker::Forget() {
  in_a_row_ = 0;
  outcomes_ = 0;
  failures_ = 0;
  silent_since_ = absl::InfiniteFuture();
}

void CircuitBreaker::Open() {
  // The first opening starts anew; a failed probe doubles the pause.
  backoff_ = state_ == State::kClosed
                 ? options_.first_backoff
                 : std::min(backoff_ * 2, options_.max_backoff);
  // Jitter only shortens the pause: orchestrators whose breakers opened
  // together do not probe together.
  next_probe_ = clock_() + backoff_ * (1.0 - options_.jitter * random_());
  ++epoch_;
  Forget();
  Become(State::kOpen);
}

std::optional<int64_t> CircuitBreaker::Allow() {
  absl::MutexLock lock(&mu_);
  if (state_ == State::kClosed) return epoch_;
  const absl::Time now = clock_();
  if (now < next_probe_) return std::nullopt;
  // An earlier probe has neither succeeded nor failed in its time: it counts as
  // lost, and its late outcome, of an old epoch, as nothing.
  if (state_ == State::kHalfOpen) {
    backoff_ = std::min(backoff_ * 2, options_.max_backoff);
    ++epoch_;
  }
  next_probe_ = now + backoff_;
  Become(State::kHalfOpen);
  return epoch_;
}

std::optional<int64_t> CircuitBreaker::AllowAhead() const {
  absl::MutexLock lock(&mu_);
  if (state_ != State::kClosed) return std::nullopt;
  return epoch_;
}

bool CircuitBreaker::MayProbe() const {
  absl::MutexLock lock(&mu_);
  return state_ != State::kClosed && clock_() >= next_probe_;
}

void CircuitBreaker::Count(bool failed) {
  // Halve the counts, so that the share follows recent outcomes.
  if (outcomes_ >= 2 * options_.window) {
    outcomes_ /= 2;
    failures_ /= 2;
  }
  ++outcomes_;
  failures_ += failed;
  in_a_row_ = failed ? in_a_row_ + 1 : 0;
}

void CircuitBreaker::Success() {
  absl::MutexLock lock(&mu_);
  silent_since_ = absl::InfiniteFuture();
  if (state_ == State::kHalfOpen) {
    Forget();
    Become(State::kClosed);
  }
  // An answer while open belongs to an earlier ask: not counted.
  if (state_ == State::kClosed) Count(false);
}

void CircuitBreaker::Failure(int64_t epoch) {
  absl::MutexLock lock(&mu_);
  if (epoch == epoch_) FailureLocked();
}

void CircuitBreaker::Late(absl::Duration waited) {
  absl::MutexLock lock(&mu_);
  if (state_ != State::kClosed) return;  // the probe's outcome decides
  const absl::Time now = clock_();
  // The silence is measured over asks: a pause in which no draft was asked for
  // is not the service's.
  if (now - waited - last_late_ > options_.silence) {
    silent_since_ = absl::InfiniteFuture();
  }
  last_late_ = now;
  silent_since_ = std::min(silent_since_, now);
  if (now - silent_since_ >= options_.silence) FailureLocked();
}

void CircuitBreaker::FailureLocked() {
  if (state_ == State::kOpen) return;
  if (state_ == State::kHalfOpen) {
    Open();
    return;
  }
  Count(true);
  // Both rules: a run of failures finds an outage fast, a share finds a service
  // that fails every other time.
  const bool too_many = outcomes_ >= options_.window &&
                        failures_ >= options_.failure_share * outcomes_;
  if (in_a_row_ >= options_.failures_in_a_row || too_many) Open();
}

}  // namespace foretoken::orchestrator
