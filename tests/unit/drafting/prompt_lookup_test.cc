#include "common/drafting/prompt_lookup.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using Match = PromptLookupOptions::Match;

std::vector<TokenId> DraftAfter(const PromptLookupOptions& options,
                                const std::vector<TokenId>& context,
                                int max_nodes = 64) {
  PromptLookupDrafter drafter(options);
  drafter.StartRequest(context);
  DraftTree tree;
  drafter.Draft(max_nodes, tree);
  for (int i = 0; i < tree.size(); ++i) EXPECT_EQ(tree.parents[i], i - 1);
  return tree.tokens;
}

TEST(PromptLookupTest, CopiesWhatFollowedTheFirstOccurrence) {
  //                 1 2 -> 3 4        1 2 -> 5 6
  EXPECT_THAT(DraftAfter({}, {1, 2, 3, 4, 1, 2, 5, 6, 1, 2}),
              ElementsAre(3, 4, 1, 2, 5, 6, 1, 2));
}

TEST(PromptLookupTest, OrTheLatestByOption) {
  EXPECT_THAT(
      DraftAfter({3, 10, Match::kLatest}, {1, 2, 3, 4, 1, 2, 5, 6, 1, 2}),
      ElementsAre(5, 6, 1, 2));
}

TEST(PromptLookupTest, TheLongestMatchWinsOverAnEarlierShorterOne) {
  // 2 first stands before 9, 1 2 before 8, and 7 1 2 before 6.
  EXPECT_THAT(DraftAfter({3, 1}, {2, 9, 1, 2, 8, 7, 1, 2, 6, 7, 1, 2}),
              ElementsAre(6));
  EXPECT_THAT(DraftAfter({2, 1}, {2, 9, 1, 2, 8, 7, 1, 2, 6, 7, 1, 2}),
              ElementsAre(8));
  EXPECT_THAT(DraftAfter({1, 1}, {2, 9, 1, 2, 8, 7, 1, 2, 6, 7, 1, 2}),
              ElementsAre(9));
}

TEST(PromptLookupTest, TheSuffixIsNoMatchOfItself) {
  EXPECT_THAT(DraftAfter({}, {1, 2, 3}), IsEmpty());
  EXPECT_THAT(DraftAfter({}, {}), IsEmpty());
  EXPECT_THAT(DraftAfter({}, {4}), IsEmpty());
}

TEST(PromptLookupTest, AMatchMayOverlapTheSuffix) {
  EXPECT_THAT(DraftAfter({}, {5, 5, 5, 5}), ElementsAre(5));
}

TEST(PromptLookupTest, DraftsNoMoreThanTokensAndNodes) {
  const std::vector<TokenId> context = {1, 2, 3, 4, 5, 6, 7, 8, 1};
  EXPECT_THAT(DraftAfter({3, 4}, context), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(DraftAfter({3, 4}, context, /*max_nodes=*/2), ElementsAre(2, 3));
}

TEST(PromptLookupTest, CommittedTokensAreIndexedAcrossCommits) {
  PromptLookupDrafter drafter({});
  DraftTree tree;
  drafter.StartRequest(std::vector<TokenId>{9});
  drafter.Commit(std::vector<TokenId>{1, 2});
  drafter.Commit(std::vector<TokenId>{3});
  drafter.Commit(std::vector<TokenId>{1, 2});
  drafter.Draft(64, tree);
  EXPECT_THAT(tree.tokens, ElementsAre(3, 1, 2));
}

TEST(PromptLookupTest, ANewRequestKnowsNothingOfTheOneBefore) {
  PromptLookupDrafter drafter({});
  DraftTree tree;
  drafter.StartRequest(std::vector<TokenId>{1, 2, 3, 1});
  drafter.StartRequest(std::vector<TokenId>{4, 1});
  drafter.Draft(64, tree);
  EXPECT_THAT(tree.tokens, IsEmpty());
}

TEST(PromptLookupTest, BeyondItsBoundItStillDraftsFromWhatItIndexed) {
  PromptLookupOptions options;
  options.max_context = 100;
  PromptLookupDrafter drafter(options);
  std::vector<TokenId> context;
  for (int i = 0; i < 5000; ++i) context.push_back(i);
  drafter.StartRequest(context);
  const size_t bytes = drafter.RequestBytes();
  drafter.Commit(std::vector<TokenId>{7, 8, 9});
  DraftTree tree;
  drafter.Draft(2, tree);
  EXPECT_THAT(tree.tokens, ElementsAre(10, 11));
  EXPECT_EQ(drafter.RequestBytes(), bytes);
  EXPECT_LE(bytes, 100 * 4 + 3 * 256 * 4);
}

// The definition, by scanning.
std::vector<TokenId> Scan(const PromptLookupOptions& options,
                          const std::vector<TokenId>& context) {
  const int size = static_cast<int>(context.size());
  for (int n = std::min(options.max_n, size); n >= 1; --n) {
    int found = -1;
    for (int at = 0; at + n < size; ++at) {
      if (!std::equal(context.end() - n, context.end(), context.begin() + at)) {
        continue;
      }
      if (options.match == Match::kFirst && found >= 0) break;
      found = at;
    }
    if (found < 0) continue;
    const int length = std::min(options.tokens, size - found - n);
    return {context.begin() + found + n, context.begin() + found + n + length};
  }
  return {};
}

TEST(PromptLookupTest, EqualsAScanOfTheContextAtEveryStep) {
  std::mt19937 random(11);
  for (const int alphabet : {2, 5, 40}) {
    for (const Match match : {Match::kFirst, Match::kLatest}) {
      const PromptLookupOptions options{4, 6, match};
      PromptLookupDrafter drafter(options);
      drafter.StartRequest({});
      std::vector<TokenId> context;
      DraftTree tree;
      for (int step = 0; step < 800; ++step) {
        context.push_back(static_cast<TokenId>(random() % alphabet));
        drafter.Commit({context.back()});
        drafter.Draft(64, tree);
        ASSERT_THAT(tree.tokens, ElementsAreArray(Scan(options, context)))
            << "alphabet " << alphabet << ", step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace foretoken
