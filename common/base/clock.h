// Clock: the source of time passed to cores, so that tests can control it.
#ifndef FORETOKEN_COMMON_BASE_CLOCK_H_
#define FORETOKEN_COMMON_BASE_CLOCK_H_

#include <chrono>
#include <functional>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace foretoken {

// Returns the present moment. Thread-safe.
using Clock = std::function<absl::Time()>;

// The wall clock at the first call plus the monotonic time since then: steps of
// the machine's clock change no deadline, back-off or duration. absl::Now() is
// for dates only. Thread-safe.
inline absl::Time MonotonicNow() {
  const auto elapsed = [] {
    return absl::FromChrono(
        std::chrono::steady_clock::now().time_since_epoch());
  };
  static const absl::Time origin = absl::Now() - elapsed();
  return origin + elapsed();
}

inline Clock MonotonicClock() { return MonotonicNow; }

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_CLOCK_H_
