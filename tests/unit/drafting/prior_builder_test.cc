#include "common/drafting/prior_builder.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/drafting/prior_testing.h"

namespace foretoken {
namespace {

using ::foretoken::testing::BuildTestPrior;
using ::foretoken::testing::ChainCorpus;
using ::foretoken::testing::ParsePrior;
using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

constexpr int32_t kVocab = 90;

TEST(PriorBuilderTest, ObeysItsSizeAndUsesIt) {
  const std::vector<TokenId> corpus = ChainCorpus(5, 300, kVocab);
  uint64_t entries = 0;
  for (uint64_t max_bytes : {2000, 5000, 12000, 30000}) {
    const auto bytes = BuildTestPrior(corpus, kVocab, max_bytes);
    FORETOKEN_ASSERT_OK(bytes);
    EXPECT_LE(bytes->size(), max_bytes);
    EXPECT_GT(bytes->size(), max_bytes * 8 / 10);
    const auto prior = ParsePrior(*bytes);
    FORETOKEN_ASSERT_OK(prior);
    EXPECT_GT((*prior)->entries(), entries);
    entries = (*prior)->entries();
  }
}

TEST(PriorBuilderTest, PruningKeepsWhatPredictsBest) {
  const auto bytes = BuildTestPrior(ChainCorpus(5, 300, kVocab), kVocab, 2500);
  const auto prior = ParsePrior(*bytes);
  FORETOKEN_ASSERT_OK(prior);
  // Three of four times the corpus goes on by this rule.
  for (TokenId token = 0; token < kVocab; ++token) {
    const StaticPrior::List list = (*prior)->AfterToken(token);
    ASSERT_GT(list.size, 0u);
    EXPECT_EQ((*prior)->TokenOf(list.first), (token * 7 + 3) % kVocab);
    EXPECT_GT((*prior)->ProbabilityOf(list.first), 0.3f);
  }
}

TEST(PriorBuilderTest, WhatIsPrunedBacksOff) {
  const std::vector<TokenId> corpus = ChainCorpus(5, 300, kVocab);
  const auto whole = ParsePrior(*BuildTestPrior(corpus, kVocab));
  const auto pruned = ParsePrior(*BuildTestPrior(corpus, kVocab, 2500));
  FORETOKEN_ASSERT_OK(whole);
  FORETOKEN_ASSERT_OK(pruned);
  EXPECT_GT((*pruned)->AfterToken(1).backoff, (*whole)->AfterToken(1).backoff);
}

TEST(PriorBuilderTest, IsAFunctionOfItsInput) {
  const std::vector<TokenId> corpus = ChainCorpus(6, 50, kVocab);
  EXPECT_EQ(*BuildTestPrior(corpus, kVocab, 9000),
            *BuildTestPrior(corpus, kVocab, 9000));
}

TEST(PriorBuilderTest, RefusesWhatCannotBeBuilt) {
  const absl::StatusCode invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(BuildTestPrior({}, kVocab),
              StatusIs(invalid, HasSubstr("no tokens")));
  EXPECT_THAT(BuildTestPrior({1, 2}, kVocab, 200),
              StatusIs(invalid, HasSubstr("max_bytes 200 is too small")));
  EXPECT_THAT(BuildTestPrior({1, 2}, 0),
              StatusIs(invalid, HasSubstr("vocabulary of 0")));
  EXPECT_THAT(BuildTestPrior({1, 95}, kVocab),
              StatusIs(invalid, HasSubstr("token 95 at 1")));
}

TEST(PriorBuilderTest, ACorpusOfOneTokenIsEnough) {
  const auto prior = ParsePrior(*BuildTestPrior({7}, kVocab));
  FORETOKEN_ASSERT_OK(prior);
  EXPECT_EQ((*prior)->contexts(), 0u);
  EXPECT_GT((*prior)->Unigram(7), (*prior)->Unigram(8));
}

}  // namespace
}  // namespace foretoken
