// A parallel loop whose body can fail.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_BUILD_PARALLEL_STATUS_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_BUILD_PARALLEL_STATUS_H_

#include <atomic>
#include <cstdint>
#include <mutex>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/base/thread_pool.h"

namespace foretoken {

// Calls body(i, thread) for every i in [0, count) until a call fails; returns
// the first failure observed.
inline absl::Status ParallelWithStatus(
    ThreadPool& pool, int64_t count,
    absl::FunctionRef<absl::Status(int64_t, int)> body) {
  std::mutex mu;
  absl::Status first;
  std::atomic<bool> failed{false};
  pool.ParallelForThreads(count, [&](int64_t i, int thread) {
    if (failed.load(std::memory_order_relaxed)) return;
    absl::Status status = body(i, thread);
    if (status.ok()) return;
    const std::lock_guard<std::mutex> lock(mu);
    if (!failed.exchange(true)) first = std::move(status);
  });
  return first;
}

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_BUILD_PARALLEL_STATUS_H_
