#include "common/spec/tree_mask.h"

#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

using ::testing::ElementsAre;

TEST(TreeMaskTest, ANodeSeesItsAncestorsAndItself) {
  //  -+- 0 -+- 1
  //   |     +- 2 --- 4
  //   +- 3
  const TreeMask mask(std::vector<int32_t>{-1, 0, 0, -1, 2});
  EXPECT_EQ(mask.words_per_node(), 1);
  EXPECT_THAT(mask.Words(0), ElementsAre(0b00001));
  EXPECT_THAT(mask.Words(1), ElementsAre(0b00011));
  EXPECT_THAT(mask.Words(2), ElementsAre(0b00101));
  EXPECT_THAT(mask.Words(3), ElementsAre(0b01000));
  EXPECT_THAT(mask.Words(4), ElementsAre(0b10101));
}

TEST(TreeMaskTest, AnEmptyTreeHasNoWords) {
  const TreeMask mask(std::vector<int32_t>{});
  EXPECT_EQ(mask.size(), 0);
  EXPECT_EQ(mask.words_per_node(), 0);
}

// Against the definition, walked node by node, over the word borders.
TEST(TreeMaskTest, EqualsAWalkToTheRootForRandomTrees) {
  std::mt19937 random(5);
  TreeMask mask;
  for (const int size : {1, 2, 63, 64, 65, 128, 129, 320}) {
    for (int repeat = 0; repeat < 5; ++repeat) {
      std::vector<int32_t> parents(size);
      for (int i = 0; i < size; ++i) {
        parents[i] = static_cast<int32_t>(random() % (i + 1)) - 1;
      }
      mask.Assign(parents);
      for (int node = 0; node < size; ++node) {
        std::vector<bool> sees(size, false);
        int depth = 0;
        for (int at = node; at >= 0; at = parents[at], ++depth) sees[at] = true;
        ASSERT_EQ(mask.Depth(node), depth) << "size " << size;
        for (int other = 0; other < size; ++other) {
          ASSERT_EQ(mask.Sees(node, other), sees[other])
              << "size " << size << ", node " << node << ", other " << other;
        }
      }
    }
  }
}

}  // namespace
}  // namespace foretoken
