#include "common/drafting/prior_estimate.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/drafting/prior_testing.h"

namespace foretoken {
namespace {

using ::foretoken::testing::ChainCorpus;

class PriorEstimateTest : public ::testing::Test {
 protected:
  static constexpr int kOrder = 4;
  static constexpr int32_t kVocab = 20;
  PriorEstimateTest()
      : counts_(
            *NgramCounts::Create(ChainCorpus(1, 30, kVocab), kOrder, kVocab)),
        estimates_(EstimateNgrams(counts_)) {}

  NgramCounts counts_;
  std::vector<NgramEstimates> estimates_;
};

TEST_F(PriorEstimateTest, UnigramsSumToOne) {
  double sum = 0;
  for (float p : estimates_[0].probability) sum += p;
  EXPECT_NEAR(sum, 1.0, 1e-5);
}

TEST_F(PriorEstimateTest, SharesAndBackoffOfEveryContextSumToOne) {
  for (int n = 2; n <= kOrder; ++n) {
    const NgramLevel& above = counts_.level(n - 1);
    for (size_t context = 0; context < above.size(); ++context) {
      double sum = estimates_[n - 2].backoff[context];
      for (uint32_t i = above.children[context];
           i < above.children[context + 1]; ++i) {
        ASSERT_GE(estimates_[n - 1].share[i], 0.0f);
        sum += estimates_[n - 1].share[i];
      }
      ASSERT_NEAR(sum, 1.0, 1e-5);
      ASSERT_GE(estimates_[n - 2].backoff[context], -1e-6f);
    }
  }
}

TEST_F(PriorEstimateTest, AnNgramIsWorthItsBestContinuationAtLeast) {
  for (int n = 3; n <= kOrder; ++n) {
    const NgramLevel& level = counts_.level(n);
    for (size_t i = 0; i < level.size(); ++i) {
      ASSERT_GE(estimates_[n - 2].worth[level.parents[i]],
                estimates_[n - 1].worth[i]);
    }
  }
}

// Kneser and Ney's example: a word that only ever follows one other is common
// and yet says little where the context is unknown.
TEST(PriorEstimateKinds, UnigramsCountKindsOfNeighbours) {
  std::vector<TokenId> corpus;
  for (TokenId i = 0; i < 8; ++i) {
    for (TokenId token : {TokenId{8}, TokenId{9}, i, TokenId{10}}) {
      corpus.push_back(token);  // 9 always after 8; 10 after eight kinds
    }
  }
  const auto counts = NgramCounts::Create(corpus, 2, 11);
  FORETOKEN_ASSERT_OK(counts);
  const std::vector<NgramEstimates> estimates = EstimateNgrams(*counts);
  EXPECT_GT(estimates[0].probability[10], 4 * estimates[0].probability[9]);
}

}  // namespace
}  // namespace foretoken
