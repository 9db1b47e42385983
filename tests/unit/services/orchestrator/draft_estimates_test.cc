#include "services/orchestrator/core/draft_estimates.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::orchestrator {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;

// Two levels: 5 and 6 at the root, 7 below 5.
DraftTree Tree(float first, float second, float below) {
  DraftTree tree;
  tree.Add(5, -1, first);
  tree.Add(6, -1, second);
  tree.Add(7, 0, below);
  return tree;
}

TEST(MatchedDepthTest, FollowsTheBranchThatWasCommitted) {
  const DraftTree tree = Tree(0.5f, 0.3f, 0.2f);
  EXPECT_EQ(MatchedDepth(tree, std::vector<TokenId>{5, 7, 9}), 2);
  EXPECT_EQ(MatchedDepth(tree, std::vector<TokenId>{6, 7}), 1);
  EXPECT_EQ(MatchedDepth(tree, std::vector<TokenId>{7}), 0);
  EXPECT_EQ(MatchedDepth(tree, std::vector<TokenId>{5}), 1);
  EXPECT_EQ(MatchedDepth(DraftTree(), std::vector<TokenId>{5}), 0);
}

TEST(DraftEstimatesTest, ClaimsStandUntilSomethingWasSeen) {
  const DraftEstimates estimates;
  std::vector<float> probs;
  estimates.Correct(DrafterId::kCrest, Tree(0.5f, 0.3f, 0.2f), probs);
  EXPECT_THAT(probs, ElementsAre(FloatNear(0.5f, 1e-6f), FloatNear(0.3f, 1e-6f),
                                 FloatNear(0.2f, 1e-6f)));
}

TEST(DraftEstimatesTest, ABraggartIsCutDownAndAModestOneBelieved) {
  DraftEstimates estimates;
  const DraftTree brags = Tree(0.9f, 0.04f, 0.8f);
  for (int i = 0; i < 200; ++i) {
    // 5 never comes, 6 half of the time.
    estimates.Learn(DrafterId::kCrest, brags,
                    std::vector<TokenId>{i % 2 == 0 ? 6 : 8, 1});
  }
  std::vector<float> probs;
  estimates.Correct(DrafterId::kCrest, brags, probs);
  EXPECT_LT(probs[0], 0.1f);
  EXPECT_NEAR(probs[1], 0.5f, 0.05f);
  // Nothing was seen below 5: its own claim, on what is left of 5's.
  EXPECT_NEAR(probs[2], probs[0] * 0.8f / 0.9f, 1e-4f);
  // Others are not touched.
  estimates.Correct(DrafterId::kFused, brags, probs);
  EXPECT_EQ(probs[0], 0.9f);
}

TEST(DraftEstimatesTest, WithoutClaimsChancesAreLearned) {
  DraftEstimates estimates;
  const DraftTree tree = Tree(0.0f, 0.0f, 0.0f);
  for (int i = 0; i < 100; ++i) {
    estimates.Learn(DrafterId::kOuroboros, tree, std::vector<TokenId>{5, 7});
  }
  std::vector<float> probs;
  estimates.Correct(DrafterId::kOuroboros, tree, probs);
  EXPECT_NEAR(probs[0], 0.5f, 0.05f);  // one of two siblings was right
  EXPECT_GT(probs[2], 0.4f);
}

TEST(DraftEstimatesTest, ADrafterMustGainMoreThanItIsWaitedFor) {
  DraftEstimates estimates;
  const DrafterId id = DrafterId::kDraftModel;
  const auto worth = [&] {
    return estimates.IsWorthItsTime(id, absl::Milliseconds(20), 2.0);
  };
  EXPECT_TRUE(worth());
  // A token is worth 10 ms: one a round for 30 ms is not.
  for (int i = 0; i < 7; ++i) {
    estimates.NoteGain(id, 1.0, absl::Milliseconds(30));
  }
  EXPECT_TRUE(worth()) << "judged too early";
  estimates.NoteGain(id, 1.0, absl::Milliseconds(30));
  EXPECT_FALSE(worth());
  for (int i = 0; i < 200; ++i) {
    estimates.NoteGain(id, 1.0, absl::Milliseconds(5));
  }
  EXPECT_TRUE(worth());
}

}  // namespace
}  // namespace foretoken::orchestrator
