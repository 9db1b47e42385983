#include "common/base/thread_pool.h"

#include "common/base/check.h"

namespace foretoken {
namespace {

// About 20 us of polling: longer than the gap between two loops of one pass,
// much shorter than a scheduler time slice.
constexpr int kSpins = 2000;

constexpr uint32_t kOpen = 1u << 15;
constexpr uint32_t kInsideMask = kOpen - 1;
constexpr int kEpochShift = 16;

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads)
    : ranges_(std::make_unique<Range[]>(threads)) {
  FORETOKEN_CHECK(threads >= 1 && threads <= kMaxThreads);
  workers_.reserve(threads - 1);
  for (int i = 1; i < threads; ++i) {
    workers_.emplace_back([this, i] { WorkerMain(i); });
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  // Raising the epoch wakes the workers; they check stop_ before they try to
  // join.
  state_.fetch_add(1u << kEpochShift, std::memory_order_release);
  state_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::ParallelFor(int64_t count,
                             absl::FunctionRef<void(int64_t)> body) {
  ParallelForThreads(count, [&](int64_t i, int) { body(i); });
}

void ThreadPool::ParallelForThreads(
    int64_t count, absl::FunctionRef<void(int64_t, int)> body) {
  // Two threads and one index: waking the others would cost more than the work.
  if (workers_.empty() || count <= 1) {
    for (int64_t i = 0; i < count; ++i) body(i, 0);
    return;
  }
  body_ = &body;
  // As even as can be, without count * threads, which may overflow.
  const int64_t size = count / threads();
  const int64_t larger = count % threads();
  int64_t first = 0;
  for (int64_t t = 0; t < threads(); ++t) {
    ranges_[t].next.store(first, std::memory_order_relaxed);
    first += size + (t < larger ? 1 : 0);
    ranges_[t].end = first;
  }
  // The release below publishes body_ and ranges_ to the workers that acquire
  // state_ in Join().
  // The last loop is closed and no worker is inside, so the low bits are zero.
  state_.fetch_add((1u << kEpochShift) + kOpen, std::memory_order_release);
  state_.notify_all();
  RunIndices(0);

  // All indices have been handed out. Closing the loop keeps late workers out;
  // only those already inside are waited for.
  uint32_t state = state_.fetch_and(~kOpen, std::memory_order_acq_rel);
  for (int i = 0; i < kSpins && (state & kInsideMask) != 0; ++i) {
    CpuRelax();
    state = state_.load(std::memory_order_acquire);
  }
  while (true) {
    // Read emptied_ before state_: if the last worker leaves in between,
    // emptied_ has changed and wait() returns at once.
    const uint32_t emptied = emptied_.load(std::memory_order_acquire);
    if ((state_.load(std::memory_order_acquire) & kInsideMask) == 0) break;
    emptied_.wait(emptied, std::memory_order_acquire);
  }
  body_ = nullptr;
}

void ThreadPool::RunIndices(int thread) {
  // Relaxed order suffices: fetch_add alone makes each index unique, and
  // results are published by Leave().
  for (int t = 0; t < threads(); ++t) {
    // Its own range first, then those of the others, so that threads meet late.
    Range& range = ranges_[(thread + t) % threads()];
    // A range that is used up is left unwritten, so that threads that look for
    // work share its cache line.
    while (range.next.load(std::memory_order_relaxed) < range.end) {
      const int64_t i = range.next.fetch_add(1, std::memory_order_relaxed);
      if (i >= range.end) break;
      (*body_)(i, thread);
    }
  }
}

bool ThreadPool::Join() {
  uint32_t state = state_.load(std::memory_order_relaxed);
  while ((state & kOpen) != 0) {
    if (state_.compare_exchange_weak(state, state + 1,
                                     std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

void ThreadPool::Leave() {
  // Wake the owner only if the loop is closed and this was the last worker
  // inside.
  const uint32_t before = state_.fetch_sub(1, std::memory_order_acq_rel);
  if ((before & kOpen) == 0 && (before & kInsideMask) == 1) {
    emptied_.fetch_add(1, std::memory_order_release);
    emptied_.notify_one();
  }
}

void ThreadPool::WorkerMain(int thread) {
  // The epoch has 16 bits. A worker that sleeps through exactly 65536 loops
  // mistakes the next one for one it has seen and misses it; no one waits for
  // it.
  uint32_t seen = 0;
  while (true) {
    uint32_t state = state_.load(std::memory_order_acquire);
    for (int i = 0; i < kSpins && (state >> kEpochShift) == seen; ++i) {
      CpuRelax();
      state = state_.load(std::memory_order_acquire);
    }
    while ((state >> kEpochShift) == seen) {
      state_.wait(state, std::memory_order_acquire);
      state = state_.load(std::memory_order_acquire);
    }
    seen = state >> kEpochShift;
    if (stop_.load(std::memory_order_relaxed)) return;
    if (Join()) {
      RunIndices(thread);
      Leave();
    }
  }
}

}  // namespace foretoken
