#include "common/infer/cuda/kernels/graph_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace foretoken::device {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Cache = GraphCache<int>;
constexpr int kMost = static_cast<int>(Cache::kMostGraphs);

std::vector<int> destroyed;

PassSizes Sizes(int rows) { return {rows, rows, 1, 1}; }

class GraphCacheTest : public ::testing::Test {
 protected:
  GraphCacheTest() { destroyed.clear(); }

  // A pass as the runner makes it: 1 if it had a graph, 2 if one was made.
  int Pass(int rows, bool can_make = true) {
    if (cache_.Begin(Sizes(rows)) != 0) return 1;
    if (!cache_.wants_graph()) return 0;
    cache_.Add(Sizes(rows), can_make ? rows : 0);
    return 2;
  }

  Cache cache_{[](int graph) { destroyed.push_back(graph); }};
};

TEST_F(GraphCacheTest, TheSecondPassOfItsSizesHasAGraph) {
  EXPECT_EQ(Pass(7), 2);
  EXPECT_EQ(Pass(7), 1);
  EXPECT_EQ(Pass(8), 2);
  EXPECT_EQ(Pass(7), 1);
  EXPECT_THAT(destroyed, IsEmpty());
  cache_.Clear();
  EXPECT_THAT(destroyed, ElementsAre(7, 8));
  EXPECT_EQ(Pass(7), 2);
}

TEST_F(GraphCacheTest, WhatCannotBeMadeIsTriedOnce) {
  EXPECT_EQ(Pass(7, false), 2);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Pass(7), 0);
  cache_.Clear();
  EXPECT_THAT(destroyed, IsEmpty());
  EXPECT_EQ(Pass(7), 2);
}

// Half as many sizes again as there is room for, one after the other: those
// that came first keep their graphs, the others run without.
TEST_F(GraphCacheTest, MoreSizesThanFitMakeNoGraphsOverAndOver) {
  int made = 0, with = 0;
  constexpr int kRounds = 20, kSizes = kMost * 3 / 2;
  for (int round = 0; round < kRounds; ++round) {
    for (int rows = 1; rows <= kSizes; ++rows) {
      const int how = Pass(rows);
      made += how == 2;
      with += how == 1;
    }
  }
  EXPECT_EQ(made, kMost);
  EXPECT_EQ(with, (kRounds - 1) * kMost);
  EXPECT_THAT(destroyed, IsEmpty());
}

TEST_F(GraphCacheTest, TheLeastRecentlyUsedGoesOnceItHasIdledLong) {
  for (int rows = 1; rows <= kMost; ++rows) EXPECT_EQ(Pass(rows), 2);
  // All but 3 and 5 stay in use.
  EXPECT_EQ(Pass(5), 1);
  for (int64_t i = 0; i < Cache::kIdlePasses / kMost + 1; ++i) {
    for (int rows = 1; rows <= kMost; ++rows) {
      if (rows == 3 || rows == 5) continue;
      EXPECT_EQ(Pass(rows), 1);
    }
  }
  EXPECT_EQ(Pass(1001), 2);
  EXPECT_THAT(destroyed, ElementsAre(3));
  EXPECT_EQ(Pass(1002), 2);
  EXPECT_THAT(destroyed, ElementsAre(3, 5));
  EXPECT_EQ(Pass(1003), 0);
  EXPECT_EQ(cache_.size(), Cache::kMostGraphs);
  cache_.Clear();
  EXPECT_THAT(destroyed, SizeIs(kMost + 2));
}

TEST_F(GraphCacheTest, AfterMemoryWasShortNoneIsMadeForAWhile) {
  EXPECT_EQ(Pass(1), 2);
  EXPECT_NE(cache_.Begin(Sizes(1)), 0);
  cache_.ClearAndPause();
  EXPECT_FALSE(cache_.wants_graph());
  EXPECT_THAT(destroyed, ElementsAre(1));
  for (int64_t i = 0; i < Cache::kPausePasses; ++i) EXPECT_EQ(Pass(1), 0);
  EXPECT_EQ(Pass(1), 2);
}

}  // namespace
}  // namespace foretoken::device
