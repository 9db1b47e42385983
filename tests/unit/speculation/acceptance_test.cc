#include "common/speculation/acceptance.h"

#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TokenTree MakeTree(const std::vector<std::pair<TokenId, int32_t>>& nodes) {
  std::vector<TokenId> tokens;
  std::vector<int32_t> parents;
  for (const auto& [token, parent] : nodes) {
    tokens.push_back(token);
    parents.push_back(parent);
  }
  return TokenTree::Create(std::move(tokens), std::move(parents)).value();
}

TEST(AcceptTest, BonusTokenFollowsTheDeepestAcceptedNode) {
  //  context -+- n0:11 --- n1:12
  //           +- n2:21
  const TokenTree tree = MakeTree({{11, -1}, {12, 0}, {21, -1}});
  const Acceptance got =
      Accept(tree, /*after context, n0, n1, n2*/ {11, 12, 99, 0});
  EXPECT_THAT(got.path, ElementsAre(0, 1));
  EXPECT_EQ(got.bonus_token, 99);
}

TEST(AcceptTest, AnEmptyTreeGivesTheBonusTokenAlone) {
  const Acceptance got = Accept(TokenTree(), {7});
  EXPECT_THAT(got.path, IsEmpty());
  EXPECT_EQ(got.bonus_token, 7);
}

TEST(AcceptTest, NothingIsAcceptedWhereTheTargetDisagreesAtOnce) {
  const TokenTree tree = MakeTree({{11, -1}, {12, 0}});
  const Acceptance got = Accept(tree, {50, 12, 13});
  EXPECT_THAT(got.path, IsEmpty());
  EXPECT_EQ(got.bonus_token, 50);
}

TEST(AcceptTest, TheWalkEntersTheBranchThatAgrees) {
  //  context -+- n0:1 -+- n1:2
  //           |        +- n3:3 --- n5:4
  //           +- n2:9 --- n4:3
  const TokenTree tree =
      MakeTree({{1, -1}, {2, 0}, {9, -1}, {3, 0}, {3, 2}, {4, 3}});
  const Acceptance got = Accept(tree, {1, 3, 0, 0, 4, 0, 8});
  EXPECT_THAT(got.path, ElementsAre(0, 3, 5));
  EXPECT_EQ(got.bonus_token, 8);
}

TEST(AcceptTest, AnAgreeingNodeUnderARejectedOneIsNotReached) {
  const TokenTree tree = MakeTree({{5, -1}, {6, 0}});
  const Acceptance got = Accept(tree, {6, 6, 6});
  EXPECT_THAT(got.path, IsEmpty());
  EXPECT_EQ(got.bonus_token, 6);
}

TEST(AcceptTest, AmongEqualSiblingsTheLowestIndexWins) {
  //  Node 2 repeats node 0 and has the child that the target wants.
  const TokenTree tree = MakeTree({{5, -1}, {6, 0}, {5, -1}, {7, 2}});
  const Acceptance got = Accept(tree, {5, 7, 0, 7, 0});
  EXPECT_THAT(got.path, ElementsAre(0));
  EXPECT_EQ(got.bonus_token, 7);
}

TEST(AcceptTest, AProbeIsNeverAcceptedAndAnEqualDraftBesideItIs) {
  const TokenTree tree = MakeTree({{5, -1}, {6, 0}, {5, -1}, {7, 2}});
  const Acceptance got =
      Accept(tree, {5, 6, 0, 7, 9}, /*acceptable=*/{false, true, true, true});
  EXPECT_THAT(got.path, ElementsAre(2, 3));
  EXPECT_EQ(got.bonus_token, 9);
}

}  // namespace
}  // namespace foretoken
