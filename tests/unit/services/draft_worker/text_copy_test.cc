#include "services/draft_worker/core/text_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace foretoken::draft_worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<TokenId> TokensOf(const std::vector<TextCopy::Guess>& guesses) {
  std::vector<TokenId> tokens;
  for (const TextCopy::Guess& guess : guesses) tokens.push_back(guess.token);
  return tokens;
}

TEST(TextCopyTest, GuessesWhatFollowedTheLongestMatch) {
  TextCopy copy;
  copy.Begin(std::vector<TokenId>{1, 2, 3, 70, 71, 9, 3, 80, 2, 3});
  const auto guesses = copy.After({}, 2);
  EXPECT_THAT(TokensOf(guesses), ElementsAre(70, 71));
  EXPECT_EQ(guesses[0].match, 2);
  EXPECT_EQ(guesses[1].match, 3);
}

TEST(TextCopyTest, TheLatestOfEqualMatchesCounts) {
  TextCopy copy;
  copy.Begin(std::vector<TokenId>{3, 70, 3, 80, 5, 3});
  EXPECT_THAT(TokensOf(copy.After({}, 3)), ElementsAre(80, 5, 3));
}

TEST(TextCopyTest, ThePathBelowTheTextCounts) {
  TextCopy copy;
  copy.Begin(std::vector<TokenId>{1, 2, 3, 4, 9, 2});
  EXPECT_THAT(TokensOf(copy.After(std::vector<TokenId>{3}, 1)), ElementsAre(4));
  EXPECT_THAT(TokensOf(copy.After({}, 1)), ElementsAre(3)) << "it is not kept";
}

TEST(TextCopyTest, ARepetitionGoesOnThroughItsOwnGuesses) {
  TextCopy copy;
  copy.Begin(std::vector<TokenId>{5, 6, 5, 6});
  EXPECT_THAT(TokensOf(copy.After({}, 5)), ElementsAre(5, 6, 5, 6, 5));
}

TEST(TextCopyTest, NothingIsGuessedAfterANewToken) {
  TextCopy copy;
  copy.Begin(std::vector<TokenId>{1, 2, 3});
  EXPECT_THAT(copy.After({}, 4), IsEmpty());
  copy.Begin(std::vector<TokenId>{1});
  EXPECT_THAT(copy.After({}, 4), IsEmpty());
  copy.Begin({});
  EXPECT_THAT(copy.After({}, 4), IsEmpty());
}

TEST(TextCopyTest, MatchesAreBounded) {
  TextCopy copy;
  copy.Begin(std::vector<TokenId>(1000, 7));
  for (const TextCopy::Guess& guess : copy.After({}, 8)) {
    EXPECT_EQ(guess.match, TextCopy::kMaxMatch);
    EXPECT_EQ(guess.token, 7);
  }
}

TEST(TextCopyTest, ChancesAreLearntByTheLengthOfTheMatch) {
  TextCopy copy;
  EXPECT_LT(copy.Chance(1), copy.Chance(2));
  EXPECT_LT(copy.Chance(8), copy.Chance(9));
  EXPECT_EQ(copy.Chance(9), copy.Chance(TextCopy::kMaxMatch));
  const float longer = copy.Chance(5);
  for (int i = 0; i < 20; ++i) copy.Note(2, /*right=*/true);
  EXPECT_GT(copy.Chance(2), 0.8f);
  EXPECT_EQ(copy.Chance(5), longer);
  // A text changes.
  for (int i = 0; i < 1000; ++i) copy.Note(2, /*right=*/true);
  for (int i = 0; i < 100; ++i) copy.Note(2, /*right=*/false);
  EXPECT_LT(copy.Chance(2), 0.4f);
}

}  // namespace
}  // namespace foretoken::draft_worker
