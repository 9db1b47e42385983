#include "common/base/fair_worker_pool.h"

#include <sys/resource.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/thread_vector.h"

namespace foretoken {
namespace {

// Nice value of the pool's threads, above that of the process.
constexpr int kNicer = 5;

// Lowers the priority of the calling thread alone: on Linux, PRIO_PROCESS with
// 0 names the thread. A thread that keeps its priority works as well.
void GiveWay() {
  setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, getpid()) + kNicer);
}

}  // namespace

FairWorkerPool::FairWorkerPool(int max_threads, const FairQueueLimits& limits,
                               int64_t quantum)
    : max_threads_(max_threads), queue_(limits, quantum) {
  StartOneMore(threads_, [this] { Main(); });
}

FairWorkerPool::~FairWorkerPool() {
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
    threads.swap(threads_);
    changed_.SignalAll();
  }
  for (std::thread& thread : threads) thread.join();
}

void FairWorkerPool::Submit(const FairItem& item, Work work) {
  Owned owned{item.owner, std::move(work)};
  std::vector<Owned> refused;
  absl::Status status;
  {
    absl::MutexLock lock(&mu_);
    status = absl::ResourceExhaustedError(absl::StrCat(
        all_running_, " requests are read and ", queue_.size(), " wait"));
    if (!queue_.Push(item, owned, refused).has_value()) {
      refused.push_back(std::move(owned));
    }
    if (idle_threads_ < queue_.size() &&
        static_cast<int>(threads_.size()) < max_threads_) {
      StartOneMore(threads_, [this] { Main(); });
    }
    changed_.SignalAll();  // WaitUntilIdle waits for it, too
  }
  for (const Owned& each : refused) each.work.refuse(status);
}

void FairWorkerPool::WaitUntilIdle() {
  absl::MutexLock lock(&mu_);
  while (queue_.size() > 0 || all_running_ > 0) changed_.Wait(&mu_);
}

bool FairWorkerPool::MayRun(const std::string& owner) const {
  return !running_.contains(owner) ||
         max_threads_ - all_running_ > max_threads_ / 2;
}

void FairWorkerPool::Main() {
  GiveWay();
  const auto may_run =
      [this](const std::string& owner)
          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return MayRun(owner); };
  absl::MutexLock lock(&mu_);
  while (true) {
    std::optional<Owned> next = queue_.Pop(may_run);
    if (!next.has_value()) {
      if (stop_ && queue_.size() == 0) return;
      ++idle_threads_;
      changed_.Wait(&mu_);
      --idle_threads_;
      continue;
    }
    ++running_[next->owner];
    ++all_running_;
    mu_.Unlock();
    next->work.run();
    next->work = {};  // free its captures before it counts as finished
    mu_.Lock();
    --all_running_;
    const auto count = running_.find(next->owner);
    if (--count->second == 0) running_.erase(count);
    // Its owner's next work may wait for this, and so may several threads.
    changed_.SignalAll();
  }
}

}  // namespace foretoken
