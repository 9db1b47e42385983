// RetryTimers: runs the work that waits for the retry hint of a refusal.
//
// One thread for all requests, started by the first that waits. Thread-safe.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_RETRY_TIMERS_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_RETRY_TIMERS_H_

#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/timer_thread.h"

namespace foretoken::gateway {

class RetryTimers {
 public:
  using Ticket = TimerThread::Ticket;

  ~RetryTimers() { Stop(); }

  // Runs `work` after `delay`, never from inside this function; nullopt,
  // without running it, after Stop.
  std::optional<Ticket> RunAfter(absl::Duration delay,
                                 std::function<void()> work)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Runs it now; does nothing if it has begun.
  void Hurry(const Ticket& ticket) ABSL_LOCKS_EXCLUDED(mu_);
  // Runs all that waits now, returns when it has run, and takes no more.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  // Null before the first work.
  std::unique_ptr<TimerThread> thread_ ABSL_GUARDED_BY(mu_);
};

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_RETRY_TIMERS_H_
