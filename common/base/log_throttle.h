// LogThrottle: bounds the lines that clients can cause in a log.
//
//   if (throttle.Take()) FORETOKEN_LOG(kInfo, ..., throttle.Skipped());
//
// A token bucket: kBurst lines at once, then kPerSecond. Thread-safe.
#ifndef FORETOKEN_COMMON_BASE_LOG_THROTTLE_H_
#define FORETOKEN_COMMON_BASE_LOG_THROTTLE_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace foretoken {

class LogThrottle {
 public:
  static constexpr double kBurst = 50;
  static constexpr double kPerSecond = 5;

  explicit LogThrottle(Clock clock = MonotonicClock())
      : clock_(std::move(clock)), filled_(clock_()) {}

  // Whether one more line may be written; otherwise it is counted as skipped.
  bool Take() {
    absl::MutexLock lock(&mu_);
    const absl::Time now = clock_();
    level_ = std::min(
        kBurst, level_ + kPerSecond * absl::ToDoubleSeconds(now - filled_));
    filled_ = now;
    if (level_ < 1) {
      ++skipped_;
      return false;
    }
    level_ -= 1;
    return true;
  }

  // The end of a line: how many were skipped since the last one, or "".
  std::string Skipped() {
    absl::MutexLock lock(&mu_);
    const int64_t skipped = std::exchange(skipped_, 0);
    return skipped == 0 ? ""
                        : absl::StrCat(" (", skipped, " such lines left out)");
  }

 private:
  const Clock clock_;
  absl::Mutex mu_;
  double level_ ABSL_GUARDED_BY(mu_) = kBurst;
  absl::Time filled_ ABSL_GUARDED_BY(mu_);
  int64_t skipped_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_LOG_THROTTLE_H_
