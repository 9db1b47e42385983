// Clock: the source of time passed to cores, so that tests can control it.
#ifndef FORETOKEN_COMMON_BASE_CLOCK_H_
#define FORETOKEN_COMMON_BASE_CLOCK_H_

#include <functional>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace foretoken {

// Returns the present moment. Thread-safe.
using Clock = std::function<absl::Time()>;

// This machine's clock.
inline Clock SystemClock() { return absl::Now; }

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_CLOCK_H_
