#include "services/orchestrator/core/tree_merger.h"

#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::orchestrator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(TreeMergerTest, EqualPathsAreOneNodeCreditedToTheLikelier) {
  DraftTree first, second;
  first.Add(7, first.Add(5, -1, 0.5f), 0.2f);
  second.Add(7, second.Add(5, -1, 0.4f), 0.3f);
  TreeMerger merger(100, 64);
  const MergedTree merged = merger.Merge({first, second}, 10);
  EXPECT_THAT(merged.tree.tokens(), ElementsAre(5, 7));
  EXPECT_THAT(merged.credited, ElementsAre(0, 1));
  EXPECT_THAT(merged.proposers, ElementsAre(3u, 3u));
}

TEST(TreeMergerTest, NodesOutsideTheVocabularyOrTooDeepTakeTheirSubtreeAlong) {
  DraftTree draft;
  draft.Add(1, -1, 0.9f);
  draft.Add(100, 0, 0.9f);  // outside
  draft.Add(2, 1, 0.9f);    // below it
  draft.Add(3, 0, 0.8f);    // depth 2
  draft.Add(4, 3, 0.7f);    // depth 3: too deep
  draft.Add(5, -1, NAN);
  TreeMerger merger(100, 64);
  const MergedTree merged = merger.Merge({draft}, 2);
  EXPECT_THAT(merged.tree.tokens(), ::testing::UnorderedElementsAre(1, 3, 5));
  EXPECT_THAT(merger.Merge({draft}, 0).tree.tokens(), IsEmpty());
}

TEST(TreeMergerTest, AnAnswerThatIsNoTreeIsLeftOut) {
  DraftTree broken, good;
  broken.Add(1, -1, 0.9f);
  broken.Add(2, 5, 0.9f);
  good.Add(3, -1, 0.1f);
  TreeMerger merger(100, 64);
  EXPECT_THAT(merger.Merge({broken, good}, 9).tree.tokens(), ElementsAre(3));
}

TEST(TreeMergerTest, TheBudgetKeepsTheLikeliestPathsWhole) {
  DraftTree draft;
  draft.Add(1, -1, 0.3f);
  draft.Add(2, -1, 0.9f);
  draft.Add(3, 1, 0.8f);
  TreeMerger merger(100, 2);
  EXPECT_THAT(merger.Merge({draft}, 9).tree.tokens(), ElementsAre(2, 3));
}

}  // namespace
}  // namespace foretoken::orchestrator
