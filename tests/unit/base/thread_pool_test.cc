#include "common/base/thread_pool.h"

#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace foretoken {
namespace {

TEST(ThreadPoolTest, RunsEveryIndexOnceWhateverTheThreadCount) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int count : {0, 1, 2, 3, 100}) {
      std::vector<int> calls(count, 0);
      pool.ParallelFor(count, [&](int64_t i) { ++calls[i]; });
      EXPECT_EQ(std::accumulate(calls.begin(), calls.end(), 0), count);
    }
  }
}

TEST(ThreadPoolTest, ManyShortLoopsSeeTheWritesOfTheLoopBefore) {
  ThreadPool pool(3);
  std::vector<int64_t> values(64, 0);
  for (int round = 0; round < 20'000; ++round) {
    pool.ParallelFor(64, [&](int64_t i) {
      EXPECT_EQ(values[i], round);
      values[i] = round + 1;
    });
  }
}

TEST(ThreadPoolTest, NoTwoCallsShareAThreadNumberAtOnce) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> inside(pool.threads());
  for (int round = 0; round < 2'000; ++round) {
    pool.ParallelForThreads(16, [&](int64_t, int thread) {
      ASSERT_GE(thread, 0);
      ASSERT_LT(thread, pool.threads());
      EXPECT_EQ(inside[thread].fetch_add(1), 0);
      inside[thread].fetch_sub(1);
    });
  }
}

// No thread leaves its first index before all have one, so none can have been
// helped.
TEST(ThreadPoolTest, EachThreadBeginsWithItsOwnRange) {
  for (const int threads : {2, 3, 5}) {
    ThreadPool pool(threads);
    for (const int count : {threads, 7 * threads, 7 * threads + 2}) {
      std::vector<std::vector<int64_t>> taken(threads);
      std::atomic<int> begun{0};
      pool.ParallelForThreads(count, [&](int64_t i, int thread) {
        taken[thread].push_back(i);
        if (taken[thread].size() > 1) return;
        ++begun;
        while (begun < threads) std::this_thread::yield();
      });
      int64_t first = 0;
      for (int t = 0; t < threads; ++t) {
        EXPECT_EQ(taken[t][0], first) << t << " of " << threads;
        first += count / threads + (t < count % threads ? 1 : 0);
      }
      EXPECT_EQ(first, count);
    }
  }
}

// The first index of one thread ends after all the others.
TEST(ThreadPoolTest, IdleThreadsHelpInTheRangesOfOthers) {
  constexpr int kThreads = 3;
  constexpr int kCount = 30;
  ThreadPool pool(kThreads);
  for (int slow = 0; slow < kThreads; ++slow) {
    std::atomic<int> done{0};
    std::atomic<bool> waiting{false};
    pool.ParallelForThreads(kCount, [&](int64_t, int thread) {
      if (thread == slow && !waiting.exchange(true)) {
        while (done < kCount - 1) std::this_thread::yield();
      } else {
        // The loop must not end before the slow thread has joined it.
        while (!waiting) std::this_thread::yield();
      }
      ++done;
    });
    EXPECT_EQ(done, kCount);
  }
}

// More loops than the epoch can count, with workers that mostly come too late.
TEST(ThreadPoolTest, LoopsThatWorkersMissAreDoneByTheCaller) {
  ThreadPool pool(3);
  int64_t done = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::atomic<int> calls{0};
    pool.ParallelFor(2, [&](int64_t) { ++calls; });
    done += calls;
  }
  EXPECT_EQ(done, 400'000);
}

}  // namespace
}  // namespace foretoken
