#include "common/drafting/verified_tree.h"

#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

using ::testing::ElementsAre;

TEST(CandidateRowsTest, CostsAreRelativeToTheBestOfTheRow) {
  const CandidateRows rows = CandidateRows::Of({
      {{5, -1.0f}, {6, -1.5f}, {7, -100.0f}},
      {},
      {{8, 20.0f}},
  });
  EXPECT_EQ(rows.width, 3);
  EXPECT_THAT(rows.tokens, ElementsAre(5, 6, 7, -1, -1, -1, 8, -1, -1));
  EXPECT_THAT(rows.costs, ElementsAre(0, 8, 255, 255, 255, 255, 0, 255, 255));
}

TEST(CandidateRowsTest, WhatIsNoProbabilityIsLeftOut) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const CandidateRows rows = CandidateRows::Of({
      {{5, -1.0f}, {6, -kInfinity}},
      {{5, std::numeric_limits<float>::quiet_NaN()}, {6, -1.0f}},
      {{-7, 0.0f}, {6, -1.0f}},
  });
  EXPECT_THAT(rows.tokens, ElementsAre(5, -1, -1, -1, -1, -1));
  EXPECT_TRUE(CandidateRows::Of({}).empty());
}

TEST(CandidateRowsTest, RowsAreNoWiderThanTheProtocolAllows) {
  const CandidateRows rows =
      CandidateRows::Of({std::vector<TokenLogprob>(20, {1, 0.0f})});
  EXPECT_EQ(rows.width, kMaxRowCandidates);
  EXPECT_EQ(rows.tokens.size(), size_t{kMaxRowCandidates});
}

}  // namespace
}  // namespace foretoken
