#include "common/drafting/prior_builder.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
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

// A prior of `corpus` over `base`, each of them without a limit of size.
absl::StatusOr<std::shared_ptr<const StaticPrior>> PriorOver(
    const std::vector<TokenId>& base, const std::vector<TokenId>& corpus,
    int base_order = 4, int order = 4) {
  PriorBuildOptions options;
  options.order = order;
  options.vocab_size = kVocab;
  options.tokenizer = testing::TestFingerprint();
  FORETOKEN_ASSIGN_OR_RETURN(const std::string below,
                             BuildTestPrior(base, kVocab, 1 << 20, base_order));
  FORETOKEN_ASSIGN_OR_RETURN(options.base, ParsePrior(below));
  FORETOKEN_ASSIGN_OR_RETURN(const std::string bytes,
                             BuildPrior(corpus, options));
  return ParsePrior(bytes);
}

// P(token | context) without backoff; 0 for what is not listed.
float Listed(const StaticPrior& prior, std::vector<TokenId> context,
             TokenId token) {
  StaticPrior::List list = prior.AfterToken(context[0]);
  for (size_t i = 1; i < context.size(); ++i) {
    const int64_t entry = prior.Find(list, context[i]);
    if (entry < 0) return 0;
    list = prior.AfterEntry(static_cast<uint32_t>(entry));
  }
  const int64_t entry = prior.Find(list, token);
  return entry < 0 ? 0 : prior.ProbabilityOf(static_cast<uint32_t>(entry));
}

// "1 2 3 4" many times.
std::vector<TokenId> Repeated(std::vector<TokenId> words, int times) {
  std::vector<TokenId> corpus;
  words.push_back(kDocumentBorder);
  for (int i = 0; i < times; ++i) {
    corpus.insert(corpus.end(), words.begin(), words.end());
  }
  return corpus;
}

TEST(PriorBuilderTest, ACorpusOutweighsItsBaseWhereItHasEvidence) {
  const std::vector<TokenId> base = Repeated({1, 2, 3, 4}, 50);
  const auto below = ParsePrior(*BuildTestPrior(base, kVocab));
  const auto prior = PriorOver(base, Repeated({2, 3, 7, 8}, 50));
  FORETOKEN_ASSERT_OK(prior);
  // After 2 3 the two disagree; the corpus has been seen often enough.
  EXPECT_GT(Listed(**prior, {2, 3}, 7), 0.6f);
  EXPECT_GT(Listed(**prior, {2, 3}, 4), 0.0f);
  EXPECT_LT(Listed(**prior, {2, 3}, 4), 0.2f);
  // Where only one of them has evidence, it alone counts.
  EXPECT_EQ(Listed(**prior, {1, 2}, 3), Listed(**below, {1, 2}, 3));
  EXPECT_GT(Listed(**prior, {3, 7}, 8), 0.1f);
  EXPECT_GT((*prior)->Unigram(1), 0.0f);
}

TEST(PriorBuilderTest, OneOccurrenceDoesNotOverruleABase) {
  const auto prior =
      PriorOver(Repeated({1, 2, 3, 4}, 50), Repeated({2, 3, 7}, 1));
  FORETOKEN_ASSERT_OK(prior);
  EXPECT_GT(Listed(**prior, {2, 3}, 4), Listed(**prior, {2, 3}, 7));
}

TEST(PriorBuilderTest, AllNGramsOfABaseStay) {
  const std::vector<TokenId> base = ChainCorpus(5, 100, kVocab);
  const auto below = ParsePrior(*BuildTestPrior(base, kVocab));
  FORETOKEN_ASSERT_OK(below);
  const std::vector<TokenId> corpus = ChainCorpus(9, 100, kVocab);
  for (const int order : {3, 4, 5}) {  // shorter, equal and longer
    const auto prior = PriorOver(base, corpus, /*base_order=*/4, order);
    FORETOKEN_ASSERT_OK(prior);
    EXPECT_EQ((*prior)->order(), std::max(order, 4));
    EXPECT_GT((*prior)->entries(), (*below)->entries());
    for (size_t i = 0; i + 3 < base.size(); ++i) {
      const auto words = absl::MakeConstSpan(base).subspan(i, 4);
      if (absl::c_linear_search(words, kDocumentBorder)) continue;
      ASSERT_GT(Listed(**prior, {words[0], words[1], words[2]}, words[3]), 0.0f)
          << i;
    }
    // Shares and backoff of a context are one distribution.
    for (TokenId token = 0; token < kVocab; ++token) {
      const StaticPrior::List list = (*prior)->AfterToken(token);
      double sum = list.backoff;
      for (uint32_t i = 0; i < list.size; ++i) {
        sum += (*prior)->ProbabilityOf(list.first + i);
      }
      EXPECT_NEAR(sum, 1.0, 0.06) << token;  // a code is exact to 2.2 %
    }
  }
}

TEST(PriorBuilderTest, RefusesABaseThatDoesNotFit) {
  PriorBuildOptions options;
  options.vocab_size = kVocab + 1;
  options.base =
      *ParsePrior(*BuildTestPrior(ChainCorpus(5, 100, kVocab), kVocab));
  const absl::StatusCode invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(BuildPrior(std::vector<TokenId>{1, 2}, options),
              StatusIs(invalid, HasSubstr("a base of a vocabulary of 90")));
  options.vocab_size = kVocab;
  options.max_bytes = options.base->bytes() - 1;
  EXPECT_THAT(BuildPrior(std::vector<TokenId>{1, 2}, options),
              StatusIs(invalid, HasSubstr("the n-grams of the base")));
}

TEST(PriorBuilderTest, ACorpusOfOneTokenIsEnough) {
  const auto prior = ParsePrior(*BuildTestPrior({7}, kVocab));
  FORETOKEN_ASSERT_OK(prior);
  EXPECT_EQ((*prior)->contexts(), 0u);
  EXPECT_GT((*prior)->Unigram(7), (*prior)->Unigram(8));
}

}  // namespace
}  // namespace foretoken
