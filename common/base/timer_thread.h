// TimerThread: runs functions at their times, on one thread of its own.
//
// For short work that must run later, or outside its caller's locks.
// Thread-safe.
#ifndef FORETOKEN_COMMON_BASE_TIMER_THREAD_H_
#define FORETOKEN_COMMON_BASE_TIMER_THREAD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace foretoken {

class TimerThread {
 public:
  // A function that has not run yet.
  using Ticket = std::pair<absl::Time, uint64_t>;

  explicit TimerThread(Clock clock = MonotonicClock());
  // Runs what is left at once.
  ~TimerThread();
  TimerThread(const TimerThread&) = delete;
  TimerThread& operator=(const TimerThread&) = delete;

  // Runs `work` at `time`, or as soon as possible after it; work of the same
  // time in the order of its arrival. Never from inside this function.
  Ticket RunAt(absl::Time time, std::function<void()> work)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Runs it now; does nothing if it has begun.
  void Hurry(const Ticket& ticket) ABSL_LOCKS_EXCLUDED(mu_);
  // Runs everything now that has come so far.
  void HurryAll() ABSL_LOCKS_EXCLUDED(mu_);
  // Functions that have not returned.
  int64_t active() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  const Clock clock_;
  mutable absl::Mutex mu_;
  std::map<Ticket, std::function<void()>> work_ ABSL_GUARDED_BY(mu_);
  uint64_t last_ ABSL_GUARDED_BY(mu_) = 0;
  bool running_ ABSL_GUARDED_BY(mu_) = false;  // a function
  // Whether the thread must look again before the time that it sleeps until.
  bool wake_ ABSL_GUARDED_BY(mu_) = false;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: uses all of the above
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_TIMER_THREAD_H_
