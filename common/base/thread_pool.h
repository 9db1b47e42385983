// ThreadPool: a fixed set of threads that runs one parallel loop at a time.
//
// Built for many short loops per second (a forward pass has hundreds). After a
// loop, workers spin for a bounded time and then sleep on a futex, so that an
// idle or crowded machine does not burn cores on waiting. The caller takes part
// in every loop and never waits for a worker that has not joined: a worker that
// wakes up late finds the loop closed. Which thread runs which index is
// unspecified; callers store results by index only, so the thread count never
// changes a bit of output.
//
// Each thread first takes the indices of its own contiguous range, in order,
// and then helps in the ranges of the others. Loops over consecutive memory are
// thus read in long runs, which hardware and kernels fetch ahead of.
//
// Owned by one thread: only the owner may call ParallelFor.
#ifndef FORETOKEN_COMMON_BASE_THREAD_POOL_H_
#define FORETOKEN_COMMON_BASE_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace foretoken {

class ThreadPool {
 public:
  // `threads` includes the caller, 1..kMaxThreads; 1 starts no threads.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  static constexpr int kMaxThreads = 1024;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(i) once for every i in [0, count), on any thread, and returns
  // when all calls are done. Indices are handed out one at a time, so each
  // should carry some microseconds of work.
  void ParallelFor(int64_t count, absl::FunctionRef<void(int64_t)> body);

  // As above, with body(i, thread), thread in [0, threads()). No two calls with
  // the same `thread` overlap, so it can index a scratch buffer; results must
  // not depend on it.
  void ParallelForThreads(int64_t count,
                          absl::FunctionRef<void(int64_t, int)> body);

 private:
  using Body = absl::FunctionRef<void(int64_t, int)>;

  // Indices [next, end) of a loop have not been handed out.
  struct alignas(64) Range {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  void WorkerMain(int thread);
  void RunIndices(int thread);
  bool Join();
  void Leave();

  std::vector<std::thread> workers_;
  // The current loop. Written by the owner while no worker is inside.
  const Body* body_ = nullptr;
  const std::unique_ptr<Range[]> ranges_;  // [threads()], by thread
  // epoch << 16 | open << 15 | workers inside. A worker enters by incrementing
  // the count while `open` is set. When the indices run out the owner clears
  // `open` and waits only for the workers inside.
  alignas(64) std::atomic<uint32_t> state_{0};
  // Incremented when the last worker leaves a closed loop.
  alignas(64) std::atomic<uint32_t> emptied_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_THREAD_POOL_H_
