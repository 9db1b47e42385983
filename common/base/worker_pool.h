// WorkerPool: a thread pool for blocking work. Threads after the first are
// started on demand, up to a limit; further work waits in a bounded queue.
// Thread-safe.
#ifndef FORETOKEN_COMMON_BASE_WORKER_POOL_H_
#define FORETOKEN_COMMON_BASE_WORKER_POOL_H_

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace foretoken {

class WorkerPool {
 public:
  WorkerPool(int max_threads, int max_waiting);
  // Waits for all work, queued work included.
  ~WorkerPool();

  // Runs `work` on a pool thread. ResourceExhausted if all threads are busy and
  // the queue is full.
  absl::Status Submit(std::function<void()> work);

  // Number of running and queued items.
  int active() const;

 private:
  void Main();

  const int max_threads_;
  const int max_waiting_;
  mutable absl::Mutex mu_;
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);
  int idle_ ABSL_GUARDED_BY(mu_) = 0;
  int running_ ABSL_GUARDED_BY(mu_) = 0;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_WORKER_POOL_H_
