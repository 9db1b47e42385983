#include "common/drafting/tree_grower.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/drafting/prior_testing.h"

namespace foretoken {
namespace {

class TreeGrowerTest : public ::testing::Test {
 protected:
  static constexpr int32_t kVocab = 60;
  void SetUp() override {
    const auto prior = testing::ParsePrior(
        *testing::BuildTestPrior(testing::ChainCorpus(1, 200, kVocab), kVocab));
    FORETOKEN_ASSERT_OK(prior);
    prior_ = *prior;
  }
  // A cursor after a random text that the request has seen.
  Cursor ReadRandom(NextTokenModel& model, uint32_t seed) {
    std::mt19937 random(seed);
    Cursor cursor;
    for (int i = 0; i < 200; ++i) {
      const TokenId token = static_cast<TokenId>(random() % 3 * 7);
      Cursor next;
      model.Advance(cursor, token, next);
      model.Settle(next);
      cursor = next;
      request_.Append(token);
    }
    return cursor;
  }

  std::shared_ptr<const StaticPrior> prior_;
  WindowTrie request_{1024};
  SharedTrust shared_;
  Trust trust_{shared_};
};

void ExpectValid(const DraftTree& tree, int max_nodes) {
  ASSERT_LE(tree.size(), max_nodes);
  std::set<std::pair<int32_t, TokenId>> siblings;
  for (int i = 0; i < tree.size(); ++i) {
    ASSERT_GE(tree.parents[i], kRootParent);
    ASSERT_LT(tree.parents[i], i);
    ASSERT_GE(tree.tokens[i], 0);
    ASSERT_GT(tree.probs[i], 0.0f);
    ASSERT_LE(tree.probs[i], 1.0f);
    if (tree.parents[i] >= 0) {
      ASSERT_LE(tree.probs[i], tree.probs[tree.parents[i]]);
    }
    // Best first: probabilities fall in order of nodes.
    if (i > 0) {
      ASSERT_LE(tree.probs[i], tree.probs[i - 1]);
    }
    ASSERT_TRUE(siblings.emplace(tree.parents[i], tree.tokens[i]).second);
  }
  ASSERT_EQ(tree.parts.size(), tree.tokens.size());
}

TEST_F(TreeGrowerTest, TreesAreValidAndFillTheirBudget) {
  NextTokenModel model({prior_.get(), &request_}, &trust_);
  const Cursor root = ReadRandom(model, 1);
  TreeGrower grower;
  DraftTree tree;
  for (int budget : {0, 1, 2, 8, 64, 300}) {
    grower.Grow(model, root, budget, 0.0f, tree);
    ExpectValid(tree, budget);
    if (budget <= 64) {
      EXPECT_EQ(tree.size(), budget);
    }
  }
}

TEST_F(TreeGrowerTest, ASmallerTreeIsTheTopOfALargerOne) {
  NextTokenModel model({prior_.get(), &request_}, &trust_);
  const Cursor root = ReadRandom(model, 2);
  TreeGrower grower;
  DraftTree small, large;
  grower.Grow(model, root, 12, 0.0f, small);
  grower.Grow(model, root, 64, 0.0f, large);
  // What is negligible depends on the budget, so the estimates may differ a
  // little; the best guesses do not.
  EXPECT_EQ(small.tokens[0], large.tokens[0]);
  EXPECT_NEAR(small.probs[0], large.probs[0], 0.05f);
}

TEST_F(TreeGrowerTest, APriceEndsTheTree) {
  NextTokenModel model({prior_.get(), &request_}, &trust_);
  const Cursor root = ReadRandom(model, 3);
  TreeGrower grower;
  DraftTree tree;
  int last = 1 << 20;
  for (float price : {0.001f, 0.05f, 0.3f, 1.0f}) {
    grower.Grow(model, root, 64, price, tree);
    ExpectValid(tree, 64);
    for (float p : tree.probs) EXPECT_GE(p, price);
    EXPECT_LE(tree.size(), last);
    last = tree.size();
  }
  EXPECT_EQ(last, 0);
}

TEST_F(TreeGrowerTest, WithoutSourcesTheTreeIsEmpty) {
  const NextTokenModel model({}, &trust_);
  TreeGrower grower;
  DraftTree tree;
  grower.Grow(model, Cursor{}, 64, 0.0f, tree);
  EXPECT_EQ(tree.size(), 0);
}

}  // namespace
}  // namespace foretoken
