// Wakeup: one thread sleeps until another has something for it, or for a time
// on the monotonic clock.
//
// For waits of microseconds, many in a second, where AwaitFor (timed_wait.h)
// would also wake the thread that ends timed waits, and where a timed wait of
// absl::CondVar would follow the wall clock.
#ifndef FORETOKEN_COMMON_BASE_WAKEUP_H_
#define FORETOKEN_COMMON_BASE_WAKEUP_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/time/time.h"

namespace foretoken {

// Thread-safe; one thread at a time may sleep.
class Wakeup {
 public:
  // Ends the sleep under way, otherwise the next one. Publish the work before
  // calling Signal().
  void Signal() {
    {
      const std::lock_guard<std::mutex> lock(mu_);
      signalled_ = true;
    }
    wake_.notify_one();
  }

  // Sleeps for at most `timeout`. Returns at once if there was a signal since
  // the last sleep.
  void SleepFor(absl::Duration timeout) {
    const auto signalled = [this] { return signalled_; };
    std::unique_lock<std::mutex> lock(mu_);
    if (timeout > kLongest) {
      wake_.wait(lock, signalled);
    } else {
      wake_.wait_until(lock,
                       std::chrono::steady_clock::now() +
                           absl::ToChronoNanoseconds(
                               std::max(timeout, absl::ZeroDuration())),
                       signalled);
    }
    signalled_ = false;
  }

 private:
  // Longer sleeps than this have no end.
  static constexpr absl::Duration kLongest = absl::Hours(24 * 365);

  std::mutex mu_;
  std::condition_variable wake_;
  bool signalled_ = false;  // guarded by mu_
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_WAKEUP_H_
