#include "services/gateway/core/retry_timers.h"

#include <utility>

#include "common/base/clock.h"

namespace foretoken::gateway {

std::optional<RetryTimers::Ticket> RetryTimers::RunAfter(
    absl::Duration delay, std::function<void()> work) {
  absl::MutexLock lock(&mu_);
  if (stopped_) return std::nullopt;
  if (thread_ == nullptr) thread_ = std::make_unique<TimerThread>();
  return thread_->RunAt(MonotonicNow() + delay, std::move(work));
}

void RetryTimers::Hurry(const Ticket& ticket) {
  absl::MutexLock lock(&mu_);
  if (thread_ != nullptr) thread_->Hurry(ticket);
}

void RetryTimers::Stop() {
  std::unique_ptr<TimerThread> thread;
  {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
    thread = std::move(thread_);
  }
  // Destroyed without the lock: the work that is left may call RunAfter.
}

}  // namespace foretoken::gateway
