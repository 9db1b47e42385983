#include "common/base/thread_pool.h"

#include "common/base/check.h"

namespace foretoken {
namespace {

// About 20 us of polling: longer than the gap between two loops of one pass,
// far shorter than a scheduler's time slice.
constexpr int kSpins = 2000;

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Returns once `value` differs from `old`: bounded spin, then futex.
void AwaitChange(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    CpuRelax();
  }
  while (value.load(std::memory_order_acquire) == old) {
    value.wait(old, std::memory_order_acquire);
  }
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  FORETOKEN_CHECK(threads >= 1);
  workers_.reserve(threads - 1);
  for (int i = 1; i < threads; ++i) {
    workers_.emplace_back([this] { WorkerMain(); });
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::ParallelFor(int64_t count,
                             absl::FunctionRef<void(int64_t)> body) {
  if (workers_.empty() || count <= 1) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  body_ = &body;
  count_ = count;
  next_.store(0, std::memory_order_relaxed);
  running_.store(static_cast<uint32_t>(workers_.size()),
                 std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  RunIndices();
  // Every worker has to leave the loop before its state may change again.
  for (uint32_t left = running_.load(std::memory_order_acquire); left != 0;
       left = running_.load(std::memory_order_acquire)) {
    AwaitChange(running_, left);
  }
  body_ = nullptr;
}

void ThreadPool::RunIndices() {
  const int64_t count = count_;
  for (int64_t i = next_.fetch_add(1, std::memory_order_relaxed); i < count;
       i = next_.fetch_add(1, std::memory_order_relaxed)) {
    (*body_)(i);
  }
}

void ThreadPool::WorkerMain() {
  uint32_t seen = 0;
  while (true) {
    AwaitChange(epoch_, seen);
    ++seen;
    if (stop_.load(std::memory_order_relaxed)) return;
    RunIndices();
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      running_.notify_all();
    }
  }
}

}  // namespace foretoken
