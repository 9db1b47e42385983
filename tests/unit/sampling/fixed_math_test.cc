#include "common/sampling/fixed_math.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace foretoken {
namespace {

// The distance in units in the last place of the exact result.
double UlpError(float got, double want) {
  const float rounded = static_cast<float>(want);
  const float next = std::nextafter(std::fabs(rounded),
                                    std::numeric_limits<float>::infinity());
  return std::fabs(got - want) / (next - std::fabs(rounded));
}

TEST(FixedLogTest, IsWithinFourUlpOverAllExponents) {
  double worst = 0;
  for (uint32_t exponent = 1; exponent < 255; ++exponent) {
    for (uint32_t step = 0; step < 2048; ++step) {
      const float x = internal::FloatFromBits((exponent << 23) | (step * 4093));
      if (x == 1.0f) continue;
      worst = std::max(worst, UlpError(FixedLog(x), std::log(double{x})));
    }
  }
  EXPECT_LT(worst, 4.0);
  EXPECT_EQ(FixedLog(1.0f), 0.0f);
}

TEST(FixedExpTest, IsWithinFourUlpDownToTheEndOfItsRange) {
  double worst = 0;
  for (int i = 0; i < 87000; ++i) {
    const float x = -0.001f * static_cast<float>(i);
    worst = std::max(worst, UlpError(FixedExp(x), std::exp(double{x})));
  }
  EXPECT_LT(worst, 4.0);
  EXPECT_EQ(FixedExp(0.0f), 1.0f);
  EXPECT_EQ(FixedExp(-87.5f), 0.0f);
  EXPECT_EQ(FixedExp(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_EQ(FixedExp(std::numeric_limits<float>::quiet_NaN()), 0.0f);
}

TEST(FixedWeightTest, IsAWholeNumberOfTwoToTheMinusForty) {
  EXPECT_EQ(FixedWeight(0.0f), uint64_t{1} << 40);
  EXPECT_EQ(FixedWeight(-28.0f), 0u);
  EXPECT_NEAR(static_cast<double>(FixedWeight(-1.0f)),
              std::exp(-1.0) * std::pow(2.0, 40), std::pow(2.0, 18));
}

}  // namespace
}  // namespace foretoken
