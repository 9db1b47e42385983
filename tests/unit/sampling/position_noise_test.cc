#include "common/sampling/position_noise.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

using ::testing::ElementsAre;

// The known-answer vectors that Random123 publishes for philox4x32-10.
TEST(PhiloxTest, GivesThePublishedKnownAnswers) {
  const auto expect = [](PhiloxWords counter, uint32_t key0, uint32_t key1,
                         const std::vector<uint32_t>& want) {
    const PhiloxWords got = Philox4x32(counter, key0, key1);
    EXPECT_THAT(got.word, ElementsAre(want[0], want[1], want[2], want[3]));
  };
  expect({{0, 0, 0, 0}}, 0, 0,
         {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const uint32_t ones = 0xffffffff;
  expect({{ones, ones, ones, ones}}, ones, ones,
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  expect({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822,
         0x299f31d0, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

// Any change of layout, mapping or logarithm changes what servers sample:
// these bits may only change together with the numerics fingerprint.
TEST(PositionNoiseTest, ItsBitsAreFixed) {
  EXPECT_EQ(internal::FloatBits(GumbelNoise(0, 0, 0)), 0x3f2cc257u);
  EXPECT_EQ(internal::FloatBits(GumbelNoise(1, 2, 3)), 0x3f56e321u);
  EXPECT_EQ(internal::FloatBits(GumbelNoise(0x123456789abcdef0u, 4095, 127999)),
            0xbf96c2abu);
  EXPECT_EQ(internal::FloatBits(GumbelNoise(~uint64_t{0}, int64_t{1} << 40, 7)),
            0x4083d1ddu);
}

TEST(PositionNoiseTest, DependsOnSeedPositionAndToken) {
  const float base = GumbelNoise(5, 100, 9);
  EXPECT_EQ(GumbelNoise(5, 100, 9), base);
  EXPECT_NE(GumbelNoise(6, 100, 9), base);
  EXPECT_NE(GumbelNoise(5 + (uint64_t{1} << 32), 100, 9), base);
  EXPECT_NE(GumbelNoise(5, 101, 9), base);
  EXPECT_NE(GumbelNoise(5, 100 + (int64_t{1} << 32), 9), base);
  EXPECT_NE(GumbelNoise(5, 100, 8), base);
  EXPECT_NE(GumbelNoise(5, 100, 13), base);
}

TEST(GumbelFromWordTest, AgreesWithTheExactFormula) {
  for (uint64_t word = 0; word <= 0xffffffffu; word += 65521) {
    const double v = (static_cast<double>(word) + 0.5) / 4294967296.0;
    const double want = -std::log(-std::log1p(-v));
    EXPECT_NEAR(GumbelFromWord(static_cast<uint32_t>(word)), want,
                2e-6 * (1 + std::fabs(want)))
        << word;
  }
}

TEST(GumbelFromWordTest, StaysInsideTheStatedRange) {
  EXPECT_NEAR(GumbelFromWord(0), 33 * std::log(2.0), 1e-5);
  EXPECT_LT(GumbelFromWord(0), kMaxGumbel);
  EXPECT_NEAR(GumbelFromWord(0xffffffffu), -std::log(33 * std::log(2.0)), 1e-5);
  EXPECT_GT(GumbelFromWord(0xffffffffu), -3.2f);
  // Both sides of the seam between the two logarithms.
  EXPECT_NEAR(GumbelFromWord(0x3fffffffu), GumbelFromWord(0x40000000u), 1e-6);
}

TEST(GumbelUpperBoundTest, IsNeverBelowTheNoise) {
  for (int bit = 0; bit < 32; ++bit) {
    for (int64_t offset = -300; offset <= 300; ++offset) {
      const uint32_t word = static_cast<uint32_t>((int64_t{1} << bit) + offset);
      EXPECT_GE(GumbelUpperBound(word), GumbelFromWord(word)) << word;
    }
  }
  for (uint64_t word = 0; word <= 0xffffffffu; word += 9973) {
    ASSERT_GE(GumbelUpperBound(static_cast<uint32_t>(word)),
              GumbelFromWord(static_cast<uint32_t>(word)));
  }
}

// Kolmogorov-Smirnov against the Gumbel distribution, over consecutive tokens,
// positions and seeds: one stream each.
TEST(PositionNoiseTest, IsGumbelDistributedAlongEveryCounter) {
  constexpr int kDraws = 20000;
  for (int axis = 0; axis < 3; ++axis) {
    std::vector<double> cdf;
    for (int i = 0; i < kDraws; ++i) {
      const float noise = axis == 0   ? GumbelNoise(42, 17, i)
                          : axis == 1 ? GumbelNoise(42, i, 17)
                                      : GumbelNoise(i, 42, 17);
      cdf.push_back(std::exp(-std::exp(-double{noise})));
    }
    std::sort(cdf.begin(), cdf.end());
    double distance = 0;
    for (int i = 0; i < kDraws; ++i) {
      distance = std::max(distance, std::fabs(cdf[i] - double(i) / kDraws));
      distance = std::max(distance, std::fabs(cdf[i] - double(i + 1) / kDraws));
    }
    // Exceeded by chance once in 1000 draws of seeds; these are fixed.
    EXPECT_LT(distance, 1.95 / std::sqrt(double{kDraws})) << "axis " << axis;
  }
}

}  // namespace
}  // namespace foretoken
