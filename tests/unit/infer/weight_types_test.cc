#include "common/infer/weight_types.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace foretoken {
namespace {

// The value of a half by its definition, in exact double arithmetic.
double HalfByDefinition(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int fraction = half & 1023;
  const double sign = (half & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(WeightTypesTest, EveryHalfWidensToItsExactValue) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const double want = HalfByDefinition(half);
    const float got = FloatFromFloat16(half);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got)) << bits;
    } else {
      EXPECT_EQ(static_cast<double>(got), want) << bits;
      EXPECT_EQ(std::signbit(got), std::signbit(want)) << bits;
    }
  }
}

TEST(WeightTypesTest, EveryHalfSurvivesARoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    if (std::isnan(FloatFromFloat16(half))) {
      EXPECT_TRUE(std::isnan(
          FloatFromFloat16(Float16FromFloat(FloatFromFloat16(half)))));
    } else {
      EXPECT_EQ(Float16FromFloat(FloatFromFloat16(half)), half);
    }
  }
}

TEST(WeightTypesTest, NarrowingToHalfRoundsToTheNearestTiesToEven) {
  // Between each pair of neighbouring halves: the middle goes to the even one,
  // and the floats just beside the middle to their own side.
  for (uint16_t half = 0; half < 0x7bff; ++half) {
    const float low = FloatFromFloat16(half);
    const float high = FloatFromFloat16(half + 1);
    const float middle = low + (high - low) / 2;
    const uint16_t even = (half & 1) == 0 ? half : half + 1;
    ASSERT_EQ(Float16FromFloat(middle), even) << half;
    ASSERT_EQ(Float16FromFloat(std::nextafter(middle, 0.0f)), half);
    ASSERT_EQ(Float16FromFloat(std::nextafter(middle, 1e9f)), half + 1);
    ASSERT_EQ(Float16FromFloat(-middle), even | 0x8000);
  }
  EXPECT_EQ(Float16FromFloat(65519.0f), 0x7bff);
  EXPECT_EQ(Float16FromFloat(65520.0f), 0x7c00);
  EXPECT_EQ(Float16FromFloat(-1e30f), 0xfc00);
  EXPECT_EQ(Float16FromFloat(1e-30f), 0);
}

TEST(WeightTypesTest, BFloat16IsTheUpperHalfOfAFloatRoundedTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
    const uint16_t low = static_cast<uint16_t>(bits);
    EXPECT_EQ(BFloat16FromFloat(FloatFromBFloat16(low)), low);
    const float middle = FloatFromBits((bits << 16) | 0x8000u);
    const uint16_t even = (low & 1) == 0 ? low : low + 1;
    ASSERT_EQ(BFloat16FromFloat(middle), even) << bits;
    ASSERT_EQ(BFloat16FromFloat(FloatFromBits((bits << 16) | 0x7fffu)), low);
    ASSERT_EQ(BFloat16FromFloat(FloatFromBits((bits << 16) | 0x8001u)),
              low + 1);
  }
  // A NaN whose low bits alone are set must not become an infinity.
  EXPECT_TRUE(std::isnan(
      FloatFromBFloat16(BFloat16FromFloat(FloatFromBits(0x7f800001u)))));
}

TEST(ConvertToFloat32Test, ReadsEveryTypeFromAnyAlignment) {
  const std::vector<float> values = {0.0f, -1.5f, 3.25f, 1024.0f, -0.125f};
  for (size_t shift = 0; shift < 4; ++shift) {
    for (const WeightType type :
         {WeightType::kFloat32, WeightType::kFloat16, WeightType::kBFloat16}) {
      const size_t width = static_cast<size_t>(WeightTypeBytes(type, 1));
      std::vector<uint8_t> bytes(shift + width * values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        const uint16_t narrow = type == WeightType::kFloat16
                                    ? Float16FromFloat(values[i])
                                    : BFloat16FromFloat(values[i]);
        const void* from = width == 4 ? static_cast<const void*>(&values[i])
                                      : static_cast<const void*>(&narrow);
        std::memcpy(bytes.data() + shift + i * width, from, width);
      }
      std::vector<float> got(values.size());
      ConvertToFloat32(type, bytes.data() + shift, absl::MakeSpan(got));
      EXPECT_EQ(got, values) << WeightTypeName(type) << " shift " << shift;
    }
  }
}

}  // namespace
}  // namespace foretoken
