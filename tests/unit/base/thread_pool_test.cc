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

}  // namespace
}  // namespace foretoken
