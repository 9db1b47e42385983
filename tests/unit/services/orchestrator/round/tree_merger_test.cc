#include "services/orchestrator/core/round/tree_merger.h"

#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::orchestrator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kVocab = 100;

TokenTree Merge(const std::vector<DraftTree>& drafts, TreeLimits limits = {},
                const TreeMerger::Price& price = nullptr) {
  std::vector<TreeMerger::Answer> answers;
  for (const DraftTree& draft : drafts) {
    answers.push_back({&draft, draft.probs, nullptr});
  }
  return TreeMerger(limits).Merge(answers, price);
}

TEST(KeepUsableTest, NodesOutsideTheVocabularyOrTooDeepTakeTheirSubtreeAlong) {
  DraftTree draft;
  draft.Add(1, -1, 0.9f);
  draft.Add(100, 0, 0.9f);  // outside
  draft.Add(2, 1, 0.9f);    // below it
  draft.Add(-7, 0, 0.9f);
  draft.Add(3, 0, 0.8f);  // depth 2
  draft.Add(4, 4, 0.7f);  // depth 3: too deep
  draft.Add(6, 5, 0.7f);
  draft.Add(5, -1, NAN);
  for (int node = 0; node < draft.size(); ++node) {
    draft.parts.push_back(node == 4 ? DrafterId::kFusedPrior
                                    : DrafterId::kFusedRequest);
  }
  DraftTree none = draft;
  EXPECT_TRUE(KeepUsable(kVocab, 2, 64, draft));
  EXPECT_THAT(draft.tokens, ElementsAre(1, 3, 5));
  EXPECT_THAT(draft.parents, ElementsAre(-1, 0, -1));
  EXPECT_THAT(draft.probs, ElementsAre(0.9f, 0.8f, 0.0f));
  EXPECT_THAT(draft.parts,
              ElementsAre(DrafterId::kFusedRequest, DrafterId::kFusedPrior,
                          DrafterId::kFusedRequest));
  EXPECT_TRUE(KeepUsable(kVocab, 0, 64, none));
  EXPECT_THAT(none.tokens, IsEmpty());
}

TEST(KeepUsableTest, AnInvalidTreeIsEmptied) {
  DraftTree forward;
  forward.Add(1, -1, 0.9f);
  forward.Add(2, 5, 0.9f);
  EXPECT_FALSE(KeepUsable(kVocab, 9, 64, forward));
  EXPECT_THAT(forward.tokens, IsEmpty());
  DraftTree itself;
  itself.Add(1, 0, 0.9f);
  EXPECT_FALSE(KeepUsable(kVocab, 9, 64, itself));
  DraftTree below;
  below.Add(1, -2, 0.9f);
  EXPECT_FALSE(KeepUsable(kVocab, 9, 64, below));
  DraftTree ragged;
  ragged.Add(1, -1, 0.9f);
  ragged.probs.clear();
  EXPECT_FALSE(KeepUsable(kVocab, 9, 64, ragged));
  DraftTree parts;
  parts.Add(1, -1, 0.9f);
  parts.parts = {DrafterId::kFusedPrior, DrafterId::kFusedRequest};
  EXPECT_FALSE(KeepUsable(kVocab, 9, 64, parts));
}

TEST(KeepUsableTest, AMillionNodesAreCutToTheFirst) {
  DraftTree draft;
  for (int i = 0; i < 1000000; ++i) draft.Add(i % kVocab, i - 1, 0.5f);
  EXPECT_TRUE(KeepUsable(kVocab, 1 << 20, 64, draft));
  EXPECT_EQ(draft.size(), 64);
}

TEST(TreeMergerTest, EqualPathsAreOneNodeCreditedToTheLikelier) {
  DraftTree first, second;
  first.Add(7, first.Add(5, -1, 0.5f), 0.2f);
  second.Add(7, second.Add(5, -1, 0.4f), 0.3f);
  const TokenTree merged = Merge({first, second});
  EXPECT_THAT(merged.tokens(), ElementsAre(5, 7));
  EXPECT_THAT(merged.credited(), ElementsAre(0, 1));
  EXPECT_THAT(merged.proposers(), ElementsAre(3u, 3u));
}

TEST(TreeMergerTest, EqualEstimatesGoToTheFirstInTheOrderOfModes) {
  DraftTree draft;
  draft.Add(5, -1, 0.5f);
  EXPECT_THAT(Merge({draft, draft}).credited(), ElementsAre(0));
}

TEST(TreeMergerTest, TheBudgetKeepsTheLikeliestPathsWhole) {
  DraftTree draft;
  draft.Add(1, -1, 0.3f);
  draft.Add(2, -1, 0.9f);
  draft.Add(3, 1, 0.8f);
  EXPECT_THAT(Merge({draft}, {2, 320}).tokens(), ElementsAre(2, 3));
}

TEST(TreeMergerTest, ThePriceSeesTheLikeliestFirstAndCutsTheRest) {
  DraftTree draft;
  draft.Add(1, -1, 0.3f);
  draft.Add(2, -1, 0.9f);
  draft.Add(3, 1, 0.8f);
  std::vector<float> seen;
  const auto one = [&](absl::Span<const float> probs) {
    seen.assign(probs.begin(), probs.end());
    return 1;
  };
  EXPECT_THAT(Merge({draft}, {}, one).tokens(), ElementsAre(2));
  EXPECT_THAT(seen, ElementsAre(0.9f, 0.8f, 0.3f));
}

TEST(TreeMergerTest, WindowsFollowTheDraftAndShareItsRows) {
  DraftTree draft, window;
  draft.Add(1, -1, 0.5f);
  window.Add(4, window.Add(1, -1, 0.0f), 0.0f);
  window.Add(9, -1, 0.0f);
  const TreeMerger::Answer answer = {&draft, draft.probs, &window};
  TreeMerger merger({64, 2});
  const TokenTree merged = merger.Merge({answer}, nullptr);
  EXPECT_EQ(merged.draft_nodes(), 1);
  EXPECT_THAT(merged.tokens(), ElementsAre(1, 4));  // two rows, no third
  EXPECT_THAT(merged.parents(), ElementsAre(-1, 0));
}

}  // namespace
}  // namespace foretoken::orchestrator
