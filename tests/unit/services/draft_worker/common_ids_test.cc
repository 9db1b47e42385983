#include "services/draft_worker/adapters/common_ids.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/drafting/prior_testing.h"

namespace foretoken::draft_worker {
namespace {

using ::testing::ElementsAre;

TEST(CommonIdsTest, ControlTokensAreTheSpecialOnesOfTheVocabulary) {
  Vocabulary vocabulary;
  ASSERT_TRUE(vocabulary.Add(0, "<unk>", "", TokenKind::kUnknown));
  ASSERT_TRUE(vocabulary.Add(1, "a", "a", TokenKind::kText));
  ASSERT_TRUE(vocabulary.Add(3, "<0x0A>", "\n", TokenKind::kByte));
  ASSERT_TRUE(vocabulary.Add(7, "<|im_end|>", "", TokenKind::kSpecial));
  ASSERT_TRUE(vocabulary.Add(5, "<|im_start|>", "", TokenKind::kSpecial));
  EXPECT_THAT(ControlIds(vocabulary), ElementsAre(5, 7));
}

TEST(CommonIdsTest, APriorsIdsComeByTheirFrequencyThenTheirNumber) {
  std::vector<TokenId> corpus;
  for (int i = 0; i < 64; ++i) {
    corpus.insert(corpus.end(), {6, 2, 6, 6, 2, 4, 6});
  }
  const auto bytes = testing::BuildTestPrior(corpus, /*vocab_size=*/8);
  FORETOKEN_ASSERT_OK(bytes);
  const auto prior = testing::ParsePrior(*bytes);
  FORETOKEN_ASSERT_OK(prior);
  EXPECT_THAT(CommonestIds(**prior), ElementsAre(6, 2, 4, 0, 1, 3, 5, 7));
}

}  // namespace
}  // namespace foretoken::draft_worker
