#include "common/speculation/token_tree.h"

#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(TokenTreeTest, HoldsWhatItWasGiven) {
  const absl::StatusOr<TokenTree> tree =
      TokenTree::Create({11, 12, 21}, {-1, 0, -1});
  FORETOKEN_ASSERT_OK(tree);
  EXPECT_EQ(tree->size(), 3);
  EXPECT_THAT(tree->tokens(), ElementsAre(11, 12, 21));
  EXPECT_THAT(tree->parents(), ElementsAre(-1, 0, -1));
}

TEST(TokenTreeTest, KnowsItsProbes) {
  const TokenTree tree =
      TokenTree::Create({11, 12, 21}, {-1, 0, -1}, /*probes=*/{0, 1}).value();
  EXPECT_EQ(tree.draft_nodes(), 1);
  EXPECT_TRUE(tree.is_probe(0));
  EXPECT_TRUE(tree.is_probe(1));
  EXPECT_FALSE(tree.is_probe(2));
  EXPECT_FALSE(TokenTree::Create({11}, {-1}).value().is_probe(0));
}

TEST(TokenTreeTest, CopiesShareTheirNodesAndOutliveTheFirst) {
  TokenTree first = TokenTree::Create({11, 12}, {-1, 0}).value();
  const TokenId* const nodes = first.tokens().data();
  const TokenTree copy = first;
  first = TokenTree();
  EXPECT_TRUE(first.empty());
  EXPECT_EQ(copy.tokens().data(), nodes);
  EXPECT_THAT(copy.tokens(), ElementsAre(11, 12));
}

TEST(TokenTreeTest, OneThatWasMovedFromIsEmpty) {
  TokenTree from = TokenTree::Create({11, 12}, {-1, 0}).value();
  const TokenTree to = std::move(from);
  EXPECT_EQ(from.size(), 0);  // NOLINT: what is tested
  EXPECT_THAT(from.parents(), IsEmpty());
  EXPECT_EQ(to.size(), 2);
}

TEST(TokenTreeTest, ValidNodesAreTakenWithoutACopy) {
  DraftTree nodes;
  nodes.Add(12, nodes.Add(11, kRootParent, 0.5f), 0.25f);
  nodes.parts = {DrafterId::kTarget, DrafterId::kFusedPrior};
  nodes.proposers = {3, 2};
  nodes.credited = {0, 1};
  const TokenId* const tokens = nodes.tokens.data();
  const TokenTree tree = TokenTree::FromValid(std::move(nodes), {false, true});
  EXPECT_EQ(tree.tokens().data(), tokens);
  EXPECT_EQ(tree.draft_nodes(), 1);
  EXPECT_THAT(tree.probs(), ElementsAre(0.5f, 0.25f));
  EXPECT_THAT(tree.parts(),
              ElementsAre(DrafterId::kTarget, DrafterId::kFusedPrior));
  EXPECT_THAT(tree.proposers(), ElementsAre(3u, 2u));
  EXPECT_THAT(tree.credited(), ElementsAre(0, 1));
}

TEST(TokenTreeTest, AnEmptyTreeIsATree) {
  const absl::StatusOr<TokenTree> tree = TokenTree::Create({}, {});
  FORETOKEN_ASSERT_OK(tree);
  EXPECT_TRUE(tree->empty());
  EXPECT_EQ(tree->draft_nodes(), 0);
  EXPECT_THAT(tree->tokens(), IsEmpty());
}

TEST(TokenTreeTest, NamesTheFirstBadNode) {
  EXPECT_THAT(TokenTree::Create({1, 2}, {-1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("2 tokens but 1 parents")));
  EXPECT_THAT(TokenTree::Create({1, 2, 3}, {-1, 1, 9}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("node 1 has parent 1, want -1..0")));
  EXPECT_THAT(TokenTree::Create({1}, {-2}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("node 0 has parent -2")));
  EXPECT_THAT(TokenTree::Create({1, -5}, {-1, 0}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("node 1 has token -5")));
  EXPECT_THAT(TokenTree::Create({}, {}, /*probes=*/{0}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("probes: node 0 after -1")));
  EXPECT_THAT(TokenTree::Create({1, 2}, {-1, 0}, /*probes=*/{1, 1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("probes: node 1 after 1, want ascending nodes "
                                 "below 2")));
}

}  // namespace
}  // namespace foretoken
