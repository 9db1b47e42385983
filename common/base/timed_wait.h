// AwaitFor: a timed wait on the monotonic clock.
//
// The timed waits of absl::Mutex and absl::CondVar end at a time of the wall
// clock: when that is set forward they end early, and when it is set back they
// last as much longer. AwaitFor waits without a timeout, and one thread of the
// process wakes it when its time is over.
#ifndef FORETOKEN_COMMON_BASE_TIMED_WAIT_H_
#define FORETOKEN_COMMON_BASE_TIMED_WAIT_H_

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace foretoken {

// Waits until `condition` holds or `timeout` has passed, and returns whether it
// holds. As with Mutex::Await, `mu` is released meanwhile. If `mu` is busy when
// the time is over, it is tried again every millisecond.
bool AwaitFor(absl::Mutex& mu, const absl::Condition& condition,
              absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_TIMED_WAIT_H_
