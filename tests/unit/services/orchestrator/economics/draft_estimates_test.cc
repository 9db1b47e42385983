#include "services/orchestrator/core/economics/draft_estimates.h"

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

TEST(ExpectedDepthTest, TheRestOfAPathThatWasRightCounts) {
  const DraftTree tree = Tree(0.5f, 0.3f, 0.2f);
  EXPECT_DOUBLE_EQ(ExpectedDepth(tree, std::vector<TokenId>{5, 9}), 1);
  EXPECT_NEAR(ExpectedDepth(tree, std::vector<TokenId>{5}), 1.4, 1e-6);
  EXPECT_DOUBLE_EQ(ExpectedDepth(tree, std::vector<TokenId>{6}), 1);
  EXPECT_DOUBLE_EQ(ExpectedDepth(tree, std::vector<TokenId>{9}), 0);
  EXPECT_DOUBLE_EQ(ExpectedDepth(DraftTree(), std::vector<TokenId>{5}), 0);
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

TEST(DraftEstimatesTest, ADraftModelThatAgreesOrNotMovesAClaim) {
  DraftEstimates estimates;
  const DraftTree tree = Tree(0.8f, 0.1f, 0.4f);
  DraftTree agrees;
  agrees.Add(5, -1, 0.9f);
  DraftTree differs;
  differs.Add(9, -1, 0.75f);
  differs.Add(6, -1, 0.2f);
  std::vector<float> probs;
  estimates.Correct(DrafterId::kFused, tree, probs, &agrees);
  // It says nothing of what follows 5, and little of 6.
  EXPECT_THAT(probs,
              ElementsAre(FloatNear(0.9f, 1e-6f), FloatNear(0.01f, 1e-6f),
                          FloatNear(0.45f, 1e-6f)));
  estimates.Correct(DrafterId::kFused, tree, probs, &differs);
  EXPECT_THAT(probs,
              ElementsAre(FloatNear(0.04f, 1e-6f), FloatNear(0.2f, 1e-6f),
                          FloatNear(0.02f, 1e-6f)));
  // Where it differs, the other one is right all the same.
  for (int i = 0; i < 100; ++i) {
    estimates.Learn(DrafterId::kFused, tree, std::vector<TokenId>{5, 1},
                    &differs);
  }
  estimates.Correct(DrafterId::kFused, tree, probs, &differs);
  EXPECT_GT(probs[0], 0.85f);
  // An empty draft says nothing.
  const DraftTree empty;
  std::vector<float> alone;
  estimates.Correct(DrafterId::kFused, tree, probs, &empty);
  estimates.Correct(DrafterId::kFused, tree, alone);
  EXPECT_EQ(probs, alone);
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
  const absl::Time now = absl::UnixEpoch();
  const auto worth = [&] {
    return estimates.IsWorthItsTime(id, 0, absl::Milliseconds(20), 2.0, now);
  };
  EXPECT_TRUE(worth());
  // A token is worth 10 ms: one a round for 30 ms is not.
  for (int i = 0; i < 7; ++i) {
    estimates.NoteGain(id, 0, 1.0, absl::Milliseconds(30), now);
  }
  EXPECT_TRUE(worth()) << "judged too early";
  estimates.NoteGain(id, 0, 1.0, absl::Milliseconds(30), now);
  EXPECT_FALSE(worth());
  for (int i = 0; i < 200; ++i) {
    estimates.NoteGain(id, 0, 1.0, absl::Milliseconds(5), now);
  }
  EXPECT_TRUE(worth());
}

class WorthOfAModelTest : public ::testing::Test {
 protected:
  // Rounds in which it was asked, or would have been.
  void Rounds(int count, double hinted, double gain, int wait_ms) {
    for (int i = 0; i < count; ++i) {
      if (!Worth(hinted)) continue;
      ++asked_;
      estimates_.NoteGain(kId, hinted, gain, absl::Milliseconds(wait_ms), now_);
      now_ += absl::Milliseconds(50);
    }
  }
  // A token takes 20 ms.
  bool Worth(double hinted) const {
    return estimates_.IsWorthItsTime(kId, hinted, absl::Milliseconds(40), 2.0,
                                     now_);
  }

  static constexpr DrafterId kId = DrafterId::kOuroboros;
  DraftEstimates estimates_;
  absl::Time now_ = absl::UnixEpoch();
  int asked_ = 0;
};

TEST_F(WorthOfAModelTest, RoundsWithOtherHintsAreJudgedApart) {
  Rounds(20, /*hinted=*/6.0, /*gain=*/0.1, /*wait_ms=*/10);
  EXPECT_EQ(asked_, 8) << "until it is judged";
  Rounds(20, /*hinted=*/0.1, /*gain=*/1.5, /*wait_ms=*/10);
  EXPECT_EQ(asked_, 28);
  EXPECT_FALSE(Worth(5.0));
  EXPECT_TRUE(Worth(0.0));
}

// A server that was busy for an hour asks as a fresh one does soon after.
TEST_F(WorthOfAModelTest, WhatABusyTimeTaughtIsForgiven) {
  Rounds(100, /*hinted=*/0.3, /*gain=*/1.5, /*wait_ms=*/12);
  Rounds(2000, /*hinted=*/0.3, /*gain=*/1.5, /*wait_ms=*/200);
  EXPECT_FALSE(Worth(0.3));
  now_ += absl::Seconds(40);
  EXPECT_TRUE(Worth(0.3));
  // One that still does not pay is soon left out again.
  const int before = asked_;
  Rounds(100, /*hinted=*/0.3, /*gain=*/1.5, /*wait_ms=*/200);
  EXPECT_GT(asked_, before);
  EXPECT_LE(asked_, before + 10);
  // One that pays again is kept.
  now_ += absl::Seconds(40);
  const int again = asked_;
  Rounds(100, /*hinted=*/0.3, /*gain=*/1.5, /*wait_ms=*/12);
  EXPECT_EQ(asked_, again + 100);
}

TEST_F(WorthOfAModelTest, ForgivenessKeepsWhatItWasAtItsBest) {
  Rounds(100, /*hinted=*/0.3, /*gain=*/0.2, /*wait_ms=*/12);
  EXPECT_EQ(asked_, 8);
  now_ += absl::Hours(1);
  EXPECT_FALSE(Worth(0.3)) << "it never paid";
}

TEST_F(WorthOfAModelTest, ReadingTakesWhatItTook) {
  EXPECT_EQ(estimates_.ReadTime(kId, 100), absl::ZeroDuration());
  estimates_.NoteTextRead(kId, {1000, absl::Seconds(2)});
  EXPECT_EQ(estimates_.ReadTime(kId, 100), absl::Milliseconds(200));
  estimates_.NoteTextRead(kId, {100, absl::Milliseconds(400)});
  EXPECT_EQ(estimates_.ReadTime(kId, 100), absl::Milliseconds(250));
  estimates_.NoteTextRead(kId, {0, absl::Seconds(1)});
  EXPECT_EQ(estimates_.ReadTime(kId, 100), absl::Milliseconds(250));
  EXPECT_EQ(estimates_.ReadTime(DrafterId::kCrest, 100), absl::ZeroDuration());
}

}  // namespace
}  // namespace foretoken::orchestrator
