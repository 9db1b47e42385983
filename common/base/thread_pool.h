// A fixed team of threads that runs one parallel loop at a time.
//
// Made for many short loops a second (a forward pass has hundreds): workers
// spin for a bounded while after a loop, then sleep on a futex, so that an idle
// or crowded machine loses no core to waiting. The caller takes part in every
// loop and never waits for a worker that has not joined it: one that wakes up
// late finds the loop closed. Which thread runs which index is not defined;
// callers write results by index only, so the thread count never changes a bit
// of output.
//
// Owned by one thread: only the creating owner may call ParallelFor.
#ifndef FORETOKEN_COMMON_BASE_THREAD_POOL_H_
#define FORETOKEN_COMMON_BASE_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace foretoken {

class ThreadPool {
 public:
  // `threads` counts the caller, 1..kMaxThreads: 1 starts no thread at all.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  static constexpr int kMaxThreads = 1024;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(i) once for every i in [0, count), on any thread; returns when
  // all are done. Indices are handed out one by one: give each enough work
  // (some microseconds).
  void ParallelFor(int64_t count, absl::FunctionRef<void(int64_t)> body);

  // The same with body(i, thread), thread in [0, threads()): no two calls with
  // the same thread run at once, so it may name a scratch buffer. Results must
  // not depend on it.
  void ParallelForThreads(int64_t count,
                          absl::FunctionRef<void(int64_t, int)> body);

 private:
  using Body = absl::FunctionRef<void(int64_t, int)>;

  void WorkerMain(int thread);
  void RunIndices(int thread);
  bool Join();
  void Leave();

  std::vector<std::thread> workers_;
  // The loop; written by the owner while no worker is in it.
  const Body* body_ = nullptr;
  int64_t count_ = 0;
  alignas(64) std::atomic<int64_t> next_{0};
  // epoch << 16 | open << 15 | workers inside. A worker enters by raising the
  // count while `open` is set; the owner clears `open` when the indices are
  // gone and then waits only for those inside.
  alignas(64) std::atomic<uint32_t> state_{0};
  // Raised whenever the last worker leaves a closed loop.
  alignas(64) std::atomic<uint32_t> emptied_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_THREAD_POOL_H_
