#include "services/verifier/core/round_plan.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;

RoundLimits Limits() {
  RoundLimits limits;
  limits.vocab_size = 50;
  limits.max_length = 100;
  limits.max_positions = 100;
  limits.max_rows = 64;
  return limits;
}

PendingRound Round(std::vector<TokenId> tokens, std::vector<int32_t> parents,
                   int64_t length = 10, std::vector<int32_t> probes = {}) {
  PendingRound round;
  round.request.length = length;
  round.request.tree =
      TokenTree::Create(std::move(tokens), std::move(parents), probes).value();
  return round;
}

TEST(LayOutRowsTest, AnEmptyTreeIsRowZeroAlone) {
  PendingRound round = Round({}, {});
  LayOutRows(Limits(), 7, round);
  EXPECT_THAT(round.row_tokens, ElementsAre(7));
  EXPECT_THAT(round.row_parents, ElementsAre(kRootParent));
  EXPECT_EQ(round.max_draft_depth, 0);
}

TEST(LayOutRowsTest, NodesBecomeRowsUnderRowZero) {
  PendingRound round = Round({1, 2, 3}, {-1, 0, -1});
  LayOutRows(Limits(), 7, round);
  EXPECT_THAT(round.row_tokens, ElementsAre(7, 1, 2, 3));
  EXPECT_THAT(round.row_parents, ElementsAre(-1, 0, 1, 0));
  EXPECT_EQ(round.max_draft_depth, 2);
}

TEST(LayOutRowsTest, ADroppedNodeTakesItsSubtreeAlong) {
  PendingRound round = Round({50, 2, 3, 4}, {-1, 0, -1, 1});
  LayOutRows(Limits(), 7, round);
  EXPECT_THAT(round.kept_nodes, ElementsAre(2));
  EXPECT_THAT(round.row_of_node, ElementsAre(-1, -1, 1, -1));
  EXPECT_THAT(round.row_parents, ElementsAre(-1, 0));
}

TEST(LayOutRowsTest, DraftsEndOneShortOfTheSessionsLimit) {
  // 97 tokens and room for 3: two drafts and the bonus.
  PendingRound round = Round({1, 2, 3}, {-1, 0, 1}, /*length=*/97);
  LayOutRows(Limits(), 7, round);
  EXPECT_THAT(round.kept_nodes, ElementsAre(0, 1));
  round = Round({1}, {-1}, /*length=*/99);
  LayOutRows(Limits(), 7, round);
  EXPECT_EQ(round.rows(), 1);
}

TEST(LayOutRowsTest, ProbesMayPassTheSessionsLimitButNotTheModels) {
  RoundLimits limits = Limits();
  limits.max_positions = 101;
  PendingRound round = Round({1, 2, 3, 4}, {-1, 0, 1, 2}, /*length=*/98,
                             /*probes=*/{1, 2, 3});
  LayOutRows(limits, 7, round);
  EXPECT_THAT(round.kept_nodes, ElementsAre(0, 1, 2));
  EXPECT_EQ(round.max_draft_depth, 1);
}

TEST(LayOutRowsTest, TheRowLimitKeepsTheFirstNodes) {
  RoundLimits limits = Limits();
  limits.max_rows = 3;
  PendingRound round = Round({1, 2, 3, 4}, {-1, -1, -1, 0});
  LayOutRows(limits, 7, round);
  EXPECT_THAT(round.kept_nodes, ElementsAre(0, 1));
}

TEST(LayOutRowsTest, WithoutDraftsOnlyProbesUnderTheContextStay) {
  RoundLimits limits = Limits();
  limits.drafts = false;
  PendingRound round =
      Round({1, 2, 3}, {-1, -1, 0}, /*length=*/10, /*probes=*/{1, 2});
  LayOutRows(limits, 7, round);
  EXPECT_THAT(round.kept_nodes, ElementsAre(1));
  EXPECT_EQ(round.max_draft_depth, 0);
}

}  // namespace
}  // namespace foretoken::verifier
