// Eventually(): waits for what happens soon after an event.
#ifndef FORETOKEN_TESTS_SUPPORT_EVENTUALLY_H_
#define FORETOKEN_TESTS_SUPPORT_EVENTUALLY_H_

#include "absl/functional/function_ref.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace foretoken::testing {

// Polls `condition`; false if it does not hold within a minute, far more than
// any of these events takes.
inline bool Eventually(absl::FunctionRef<bool()> condition) {
  const absl::Time deadline = MonotonicNow() + absl::Minutes(1);
  while (!condition()) {
    if (MonotonicNow() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(2));
  }
  return true;
}

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_SUPPORT_EVENTUALLY_H_
