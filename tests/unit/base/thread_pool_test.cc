#include "common/base/thread_pool.h"

#include <atomic>
#include <numeric>
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
