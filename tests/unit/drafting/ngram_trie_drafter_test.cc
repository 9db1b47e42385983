#include "common/drafting/ngram_trie_drafter.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Tokens = std::vector<TokenId>;

TEST(NgramTrieDrafterTest, AsPublishedThePromptAloneIsCounted) {
  NgramTrieDrafter drafter({});
  DraftTree tree;
  drafter.StartRequest(Tokens{1, 2, 3});
  drafter.Commit(Tokens{7, 8, 7});
  drafter.Draft(64, tree);
  EXPECT_THAT(tree.tokens, IsEmpty());
  drafter.Commit(Tokens{1});
  drafter.Draft(64, tree);
  EXPECT_THAT(tree.tokens, ElementsAre(2, 3));
}

TEST(NgramTrieDrafterTest, LearningCountsCommittedTokensToo) {
  NgramTrieOptions options;
  options.learn = true;
  NgramTrieDrafter drafter(options);
  DraftTree tree;
  drafter.StartRequest(Tokens{1, 2, 3});
  drafter.Commit(Tokens{7});
  drafter.Commit(Tokens{8, 7});
  drafter.Draft(64, tree);
  EXPECT_THAT(tree.tokens, ElementsAre(8, 7));
  // Across the border of prompt and output.
  drafter.Commit(Tokens{3});
  drafter.Draft(2, tree);
  EXPECT_THAT(tree.tokens, ElementsAre(7, 8));
}

TEST(NgramTrieDrafterTest, ATreeHasAtMostNumDraftAndAtMostMaxNodes) {
  NgramTrieOptions options;
  options.num_draft = 4;
  NgramTrieDrafter drafter(options);
  DraftTree tree;
  drafter.StartRequest(Tokens{1, 2, 3, 4, 5, 6, 7, 8, 1});
  drafter.Draft(64, tree);
  EXPECT_EQ(tree.size(), 4);
  drafter.Draft(3, tree);
  EXPECT_EQ(tree.size(), 3);
}

TEST(NgramTrieDrafterTest, TheMatchIsNoLongerThanAsked) {
  NgramTrieOptions options;
  options.longest_match = 1;
  NgramTrieDrafter drafter(options);
  DraftTree tree;
  // "1 2" is followed by 3; "2" alone by 4 twice.
  drafter.StartRequest(Tokens{1, 2, 3, 2, 4, 2, 4, 1, 2});
  drafter.Draft(1, tree);
  EXPECT_THAT(tree.tokens, ElementsAre(4));
}

TEST(NgramTrieDrafterTest, ANewRequestKnowsNothingOfTheOneBefore) {
  NgramTrieDrafter drafter({});
  DraftTree tree;
  drafter.StartRequest(Tokens{1, 2, 3, 1});
  drafter.StartRequest(Tokens{4, 1});
  drafter.Draft(64, tree);
  EXPECT_THAT(tree.tokens, IsEmpty());
}

}  // namespace
}  // namespace foretoken
