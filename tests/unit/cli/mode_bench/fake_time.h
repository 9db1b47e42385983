// A clock that the test's generator moves, and its output.
#ifndef FORETOKEN_TESTS_UNIT_CLI_MODE_BENCH_FAKE_TIME_H_
#define FORETOKEN_TESTS_UNIT_CLI_MODE_BENCH_FAKE_TIME_H_

#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/generation/generation.h"

namespace foretoken::mode_bench {

// Thread-safe.
class FakeTime {
 public:
  void Advance(absl::Duration by) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    now_ += by;
  }
  absl::Time now() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return now_;
  }
  Clock clock() {
    return [this] { return now(); };
  }

 private:
  mutable absl::Mutex mu_;
  absl::Time now_ ABSL_GUARDED_BY(mu_) = absl::UnixEpoch();
};

inline GenerationDelta Tokens(std::vector<TokenId> ids) {
  GenerationDelta delta;
  delta.token_ids = std::move(ids);
  return delta;
}

}  // namespace foretoken::mode_bench

#endif  // FORETOKEN_TESTS_UNIT_CLI_MODE_BENCH_FAKE_TIME_H_
