#include "common/drafting/phrase_pool_drafter.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Tokens = std::vector<TokenId>;

PhrasePoolDrafterOptions Options(int beta, int suffixes, bool keep) {
  PhrasePoolDrafterOptions options;
  options.pool.phrase_tokens = beta;
  options.suffixes = suffixes;
  options.keep = keep;
  return options;
}

TEST(PhrasePoolDrafterTest, MergesTheNewestPhrasesOfTheLastToken) {
  PhrasePoolDrafter drafter(Options(3, 2, false));
  DraftTree tree;
  drafter.StartRequest(Tokens{1, 2, 3, 1, 4, 5, 1, 2, 6});
  drafter.Commit(Tokens{1});
  drafter.Draft(64, tree);
  // Newest: 1 2 6, then 1 4 5; the third, 1 2 3, is one too many.
  EXPECT_THAT(tree.tokens, ElementsAre(2, 6, 4, 5));
  EXPECT_THAT(tree.parents, ElementsAre(-1, 0, -1, 2));
}

TEST(PhrasePoolDrafterTest, SharedPrefixesAreOneNode) {
  PhrasePoolDrafter drafter(Options(3, 3, false));
  DraftTree tree;
  drafter.StartRequest(Tokens{1, 2, 3, 1, 2, 6, 1});
  drafter.Draft(64, tree);
  EXPECT_THAT(tree.tokens, ElementsAre(2, 6, 3));
  EXPECT_THAT(tree.parents, ElementsAre(-1, 0, 0));
  drafter.Draft(2, tree);
  EXPECT_THAT(tree.tokens, ElementsAre(2, 6));
}

TEST(PhrasePoolDrafterTest, ColdEveryRequestStartsEmpty) {
  PhrasePoolDrafter drafter(Options(3, 3, /*keep=*/false));
  DraftTree tree;
  drafter.StartRequest(Tokens{1, 2, 3});
  drafter.StartRequest(Tokens{1});
  drafter.Draft(64, tree);
  EXPECT_THAT(tree.tokens, IsEmpty());
}

TEST(PhrasePoolDrafterTest, KeptPhrasesServeTheNextRequest) {
  PhrasePoolDrafter drafter(Options(3, 3, /*keep=*/true));
  DraftTree tree;
  drafter.StartRequest(Tokens{1, 2, 3});
  drafter.StartRequest(Tokens{1});
  drafter.Draft(64, tree);
  EXPECT_THAT(tree.tokens, ElementsAre(2, 3));
  drafter.ForgetShared();
  drafter.StartRequest(Tokens{1});
  drafter.Draft(64, tree);
  EXPECT_THAT(tree.tokens, IsEmpty());
}

TEST(PhrasePoolDrafterTest, NoPhraseSpansTwoRequests) {
  PhrasePoolDrafter drafter(Options(3, 3, /*keep=*/true));
  DraftTree tree;
  drafter.StartRequest(Tokens{7, 1});
  drafter.StartRequest(Tokens{2, 3, 1});
  drafter.Draft(64, tree);
  EXPECT_THAT(tree.tokens, IsEmpty());
}

TEST(PhrasePoolDrafterTest, ColdHistoryStaysAndRequestsLeaveNothingInIt) {
  PhrasePoolDrafter drafter(Options(3, 3, /*keep=*/false));
  DraftTree tree;
  drafter.AddHistory(Tokens{1, 2, 3});
  drafter.AddHistory(Tokens{5, 6, 7});
  drafter.StartRequest(Tokens{1, 8, 9, 1});
  drafter.Draft(64, tree);
  EXPECT_THAT(tree.tokens, ElementsAre(8, 9, 2, 3));
  EXPECT_EQ(drafter.SharedTokens(), 2);  // one phrase of each
  for (int request = 0; request < 2; ++request) {
    drafter.StartRequest(Tokens{1});
    drafter.Draft(64, tree);
    EXPECT_THAT(tree.tokens, ElementsAre(2, 3));
  }
}

}  // namespace
}  // namespace foretoken
