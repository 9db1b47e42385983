// FairWorkerPool: threads for work that takes a while, shared by the owners of
// that work.
//
// Waiting work is served in turn by owner (FairQueue). An owner with work
// running gets a further thread only while more than half of the threads are
// idle: few owners with endless work then leave a thread for the next one, and
// one alone still has half of them. Threads after the first are started on
// demand. All have a lower priority than their process: endless work hardly
// slows an engine on the same processors. Thread-safe.
#ifndef FORETOKEN_COMMON_BASE_FAIR_WORKER_POOL_H_
#define FORETOKEN_COMMON_BASE_FAIR_WORKER_POOL_H_

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/base/fair_queue.h"

namespace foretoken {

class FairWorkerPool {
 public:
  struct Work {
    std::function<void()> run;  // on a thread of the pool
    // Called in its place, by a thread in Submit, if too much waits:
    // ResourceExhausted.
    std::function<void(const absl::Status&)> refuse;
  };

  // `quantum`: as FairQueue's, in the unit of the items' costs.
  FairWorkerPool(int max_threads, const FairQueueLimits& limits,
                 int64_t quantum);
  // Waits for all work, queued work included.
  ~FairWorkerPool();

  // Calls one of the functions of `work`, once. If the queue is full, the
  // newest work of the owner with the most is refused.
  void Submit(const FairItem& item, Work work) ABSL_LOCKS_EXCLUDED(mu_);

  // Returns once no work waits or runs.
  void WaitUntilIdle() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Owned {
    std::string owner;
    Work work;
  };

  void Main() ABSL_LOCKS_EXCLUDED(mu_);
  bool MayRun(const std::string& owner) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int max_threads_;
  absl::Mutex mu_;
  absl::CondVar changed_;  // work has come or ended
  FairQueue<Owned> queue_ ABSL_GUARDED_BY(mu_);
  // Work that runs, by owner; owners without any are left out.
  absl::flat_hash_map<std::string, int> running_ ABSL_GUARDED_BY(mu_);
  int all_running_ ABSL_GUARDED_BY(mu_) = 0;
  int idle_threads_ ABSL_GUARDED_BY(mu_) = 0;  // started
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_FAIR_WORKER_POOL_H_
