// Clock: the source of time that cores are given, so that tests can hold it.
#ifndef FORETOKEN_COMMON_BASE_CLOCK_H_
#define FORETOKEN_COMMON_BASE_CLOCK_H_

#include <functional>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace foretoken {

// Returns the present moment. Thread-safe.
using Clock = std::function<absl::Time()>;

// The time of this machine.
inline Clock SystemClock() { return absl::Now; }

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_CLOCK_H_
