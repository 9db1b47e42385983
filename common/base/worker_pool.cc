#include "common/base/worker_pool.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/thread_vector.h"

namespace foretoken {

WorkerPool::WorkerPool(int max_threads, int max_waiting)
    : max_threads_(max_threads), max_waiting_(max_waiting) {
  StartOneMore(threads_, [this] { Main(); });
}

WorkerPool::~WorkerPool() {
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

absl::Status WorkerPool::Submit(std::function<void()> work) {
  absl::MutexLock lock(&mu_);
  const int waiting = static_cast<int>(waiting_.size());
  // Counted together: a thread that is about to take an item changes neither
  // sum.
  if (running_ + waiting >= max_threads_ + max_waiting_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "worker pool is full: ", running_, " running, ", waiting, " waiting"));
  }
  waiting_.push_back(std::move(work));
  // Start a thread only if the idle ones cannot take every queued item.
  if (idle_ < static_cast<int>(waiting_.size()) &&
      static_cast<int>(threads_.size()) < max_threads_) {
    StartOneMore(threads_, [this] { Main(); });
  }
  return absl::OkStatus();
}

int WorkerPool::active() const {
  absl::MutexLock lock(&mu_);
  return running_ + static_cast<int>(waiting_.size());
}

void WorkerPool::Main() {
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stop_ || !waiting_.empty();
  };
  absl::MutexLock lock(&mu_);
  while (true) {
    ++idle_;
    mu_.Await(absl::Condition(&ready));
    --idle_;
    // Stopping, with nothing left.
    if (waiting_.empty()) return;
    {
      std::function<void()> work = std::move(waiting_.front());
      waiting_.pop_front();
      ++running_;
      mu_.Unlock();
      work();
      work = nullptr;  // free its captures before it counts as finished
      mu_.Lock();
    }
    --running_;
  }
}

}  // namespace foretoken
