#include "common/sampling/filter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/sampling/naive_sampler.h"

namespace foretoken {
namespace {

using ::testing::ElementsAre;

std::vector<TokenId> Ids(const std::vector<Candidate>& candidates) {
  std::vector<TokenId> ids;
  for (const Candidate& c : candidates) ids.push_back(c.id);
  return ids;
}

TEST(SelectTopKTest, SortsByLogitDescendingThenIdAscending) {
  std::vector<Candidate> kept;
  SelectTopKSorted({1.0f, 2.0f, 2.0f, 3.0f, 2.0f}, 3, kept);
  EXPECT_THAT(Ids(kept), ElementsAre(3, 1, 2));
}

TEST(SelectTopKTest, EqualsAFullSortAtEveryScaleAndK) {
  std::mt19937 random(5);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float scale : {1e-30f, 1e-3f, 1.0f, 40.0f, 1e4f, 3e38f}) {
    for (int trial = 0; trial < 40; ++trial) {
      std::vector<float> logits(1 + random() % 3000);
      for (float& logit : logits) {
        logit = scale * std::uniform_real_distribution<float>(-1, 1)(random);
        if (random() % 300 == 0) logit = -kInfinity;
        if (random() % 3 == 0) logit = logits[0];
      }
      const int k = 1 + random() % (logits.size() + 3);
      std::vector<TokenId> want = testing::NaiveOrder(logits);
      want.resize(std::min<size_t>(k, want.size()));
      std::vector<Candidate> kept;
      SelectTopKSorted(logits, k, kept);
      ASSERT_EQ(Ids(kept), want) << "scale " << scale << " k " << k;
    }
  }
}

TEST(SelectFewTest, EqualsTheFullSelectionAtEverySize) {
  std::mt19937 random(6);
  for (const size_t size :
       {1u, 7u, 8u, 31u, 1023u, 1024u, 1025u, 3000u, 9000u}) {
    for (int trial = 0; trial < 20; ++trial) {
      std::vector<float> logits(size);
      for (float& logit : logits) {
        logit = std::uniform_real_distribution<float>(-9, 9)(random);
        // Ties, some of them for the best places.
        if (trial % 2 == 1) logit = std::round(logit);
      }
      for (const int k : {1, 8}) {
        std::vector<Candidate> want, kept;
        SelectTopKSorted(logits, k, want);
        SelectFewSorted(logits, k, kept);
        ASSERT_EQ(Ids(kept), Ids(want)) << "size " << size << " k " << k;
      }
    }
  }
}

TEST(SelectFewTest, LeavesOutNanAndMinusInfinity) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> logits(2000, -kInfinity);
  std::vector<Candidate> kept;
  SelectFewSorted(logits, 8, kept);
  EXPECT_TRUE(kept.empty());
  logits[3] = logits[1999] = std::numeric_limits<float>::quiet_NaN();
  logits[5] = 1.0f;
  logits[1998] = 2.0f;
  SelectFewSorted(logits, 8, kept);
  EXPECT_THAT(Ids(kept), ElementsAre(1998, 5));
  SelectFewSorted(logits, 1, kept);
  EXPECT_THAT(Ids(kept), ElementsAre(1998));
}

TEST(FilterTest, TopPKeepsTheTokenThatCrossesTheLimit) {
  SamplingParams params;
  params.temperature = 1.0f;
  std::vector<Candidate> kept;
  const std::vector<float> equal(4, 0.0f);  // a quarter each
  params.top_p = 0.5f;
  Filter(equal, 0.0f, params, kept);
  EXPECT_EQ(kept.size(), 2u);
  params.top_p = 0.51f;
  Filter(equal, 0.0f, params, kept);
  EXPECT_EQ(kept.size(), 3u);
  params.top_p = 1e-30f;
  Filter(equal, 0.0f, params, kept);
  EXPECT_THAT(Ids(kept), ElementsAre(0));
}

TEST(FilterTest, TemperatureActsBeforeTopPAndMinP) {
  SamplingParams params;
  params.min_p = 0.3f;  // e^-1 = 0.37, e^-2 = 0.14
  std::vector<Candidate> kept;
  params.temperature = 1.0f;
  Filter({0.0f, -1.0f}, 0.0f, params, kept);
  EXPECT_EQ(kept.size(), 2u);
  params.temperature = 0.5f;
  Filter({0.0f, -1.0f}, 0.0f, params, kept);
  EXPECT_EQ(kept.size(), 1u);
}

}  // namespace
}  // namespace foretoken
