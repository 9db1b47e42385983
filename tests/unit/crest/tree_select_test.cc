#include "common/drafting/crest/tree_select.h"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

using ::testing::ElementsAre;

CrestTree Select(std::vector<std::vector<TokenId>> continuations, int max_depth,
                 int max_nodes) {
  std::sort(continuations.begin(), continuations.end());
  TreeSelector selector;
  CrestTree tree;
  selector.SelectBest(
      0, static_cast<int64_t>(continuations.size()), max_depth, max_nodes,
      [&](int64_t i, int depth) {
        return depth < static_cast<int>(continuations[i].size())
                   ? continuations[i][depth]
                   : -1;
      },
      tree);
  return tree;
}

TEST(TreeSelectorTest, TakesTheMostFrequentPrefixesFirst) {
  //  4x 5 -+- 3x 6 --- 2x 7
  //        +- 1x 8
  //  2x 9
  const CrestTree tree =
      Select({{5, 6, 7}, {5, 6, 7}, {5, 6}, {5, 8}, {9}, {9}}, 3, 4);
  EXPECT_THAT(tree.tokens, ElementsAre(5, 6, 9, 7));
  EXPECT_THAT(tree.parents, ElementsAre(-1, 0, -1, 1));
  EXPECT_THAT(tree.counts, ElementsAre(4, 3, 2, 2));
  EXPECT_EQ(tree.matches, 6u);
}

// More children than the heap holds: the best of them are still found.
TEST(TreeSelectorTest, EqualsCountingAmongManyChildren) {
  std::mt19937 random(2);
  constexpr int kNodes = 8;
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<std::vector<TokenId>> continuations(4000);
    std::map<std::vector<TokenId>, uint32_t> counts;
    for (auto& c : continuations) {
      const uint32_t bound = 1 + random() % 1000;
      c = {static_cast<TokenId>(random() % bound),
           static_cast<TokenId>(random() % 500)};
      ++counts[{c[0]}];
      ++counts[c];
    }
    std::vector<uint32_t> want;
    for (const auto& [prefix, count] : counts) want.push_back(count);
    std::sort(want.rbegin(), want.rend());
    want.resize(kNodes);
    EXPECT_EQ(Select(continuations, 2, kNodes).counts, want);
  }
}

TEST(TreeSelectorTest, EqualsCountingEveryPrefix) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<std::vector<TokenId>> continuations(random() % 60);
    std::map<std::vector<TokenId>, uint32_t> counts;
    for (auto& c : continuations) {
      c.resize(random() % 5);
      for (TokenId& token : c) token = static_cast<TokenId>(random() % 4);
      for (size_t d = 1; d <= c.size(); ++d) {
        ++counts[{c.begin(), c.begin() + static_cast<int64_t>(d)}];
      }
    }
    std::vector<uint32_t> want;
    for (const auto& [prefix, count] : counts) want.push_back(count);
    std::sort(want.rbegin(), want.rend());
    if (want.size() > 10) want.resize(10);

    const CrestTree tree = Select(continuations, 10, 10);
    EXPECT_EQ(tree.counts, want);
    std::vector<std::vector<TokenId>> paths;
    for (int i = 0; i < tree.size(); ++i) {
      ASSERT_LT(tree.parents[i], i);
      paths.push_back(tree.parents[i] < 0 ? std::vector<TokenId>()
                                          : paths[tree.parents[i]]);
      paths.back().push_back(tree.tokens[i]);
      EXPECT_EQ(counts[paths.back()], tree.counts[i]);
    }
  }
}

TEST(TreeSelectorTest, StopsAtTheDepthGiven) {
  EXPECT_THAT(Select({{1, 2, 3}}, 2, 64).tokens, ElementsAre(1, 2));
  EXPECT_EQ(Select({}, 2, 64).size(), 0);
  EXPECT_EQ(Select({{}, {}}, 2, 64).size(), 0);
}

TEST(TreeSelectorTest, RestCutDropsTheLongestPathsUntilTheSumFits) {
  // Depths 1, 2, 3, 4, 1: a sum of 11.
  CrestTree tree = Select({{1, 2, 3, 4}, {1, 2, 3, 4}, {5}}, 10, 64);
  ASSERT_EQ(tree.size(), 5);
  TreeSelector selector;
  CrestTree same = tree;
  selector.CutToPathSum(11, same);
  EXPECT_EQ(same, tree);
  selector.CutToPathSum(6, tree);
  EXPECT_THAT(tree.tokens, ElementsAre(1, 2, 5));
  EXPECT_THAT(tree.parents, ElementsAre(-1, 0, -1));
  EXPECT_THAT(tree.counts, ElementsAre(2, 2, 1));
  selector.CutToPathSum(0, tree);
  EXPECT_EQ(tree.size(), 0);
}

}  // namespace
}  // namespace foretoken
