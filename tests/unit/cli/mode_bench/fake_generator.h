// A generator with a clock of its own, for tests of the load.
#ifndef FORETOKEN_TESTS_UNIT_CLI_MODE_BENCH_FAKE_GENERATOR_H_
#define FORETOKEN_TESTS_UNIT_CLI_MODE_BENCH_FAKE_GENERATOR_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "tools/cli/generator.h"

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

// Runs `answer`, and keeps the requests.
class FakeGenerator : public cli::Generator {
 public:
  using Answer = std::function<absl::StatusOr<GenerationSummary>(
      const GenerationRequest&, TakeDelta)>;

  explicit FakeGenerator(Answer answer) : answer_(std::move(answer)) {}

  absl::StatusOr<GenerationSummary> Generate(GenerationRequest request,
                                             TakeDelta on_delta) override {
    {
      absl::MutexLock lock(&mu_);
      requests_.push_back(request);
    }
    return answer_(request, on_delta);
  }
  std::vector<GenerationRequest> requests() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return requests_;
  }

 private:
  const Answer answer_;
  mutable absl::Mutex mu_;
  std::vector<GenerationRequest> requests_ ABSL_GUARDED_BY(mu_);
};

inline GenerationDelta Tokens(std::vector<TokenId> ids) {
  GenerationDelta delta;
  delta.token_ids = std::move(ids);
  return delta;
}

}  // namespace foretoken::mode_bench

#endif  // FORETOKEN_TESTS_UNIT_CLI_MODE_BENCH_FAKE_GENERATOR_H_
