#include "common/infer/block_quants.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/gguf/gguf_files.h"
#include "common/infer/block_encoding.h"
#include "common/infer/cpu/packed_matrix.h"
#include "common/infer/cpu/quant_layout.h"
#include "common/infer/cpu/quant_pack.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace foretoken {
namespace {

using ::foretoken::testing::SourcePath;

constexpr WeightType kBlockTypes[] = {
    WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kQ4_1, WeightType::kQ5_0,
    WeightType::kQ5_1, WeightType::kQ4_K, WeightType::kQ5_K, WeightType::kQ6_K};

TEST(DequantiseBlocksTest, EveryTypeEqualsThePythonPackageToTheBit) {
  const auto files =
      GgufFiles::Open(SourcePath("tests/golden/gguf/blocks.gguf"));
  FORETOKEN_ASSERT_OK(files);
  for (const WeightType type : kBlockTypes) {
    const std::string name = WeightTypeName(type);
    const GgufTensor& blocks = files->tensors.at(name).tensor;
    const GgufTensor& values = files->tensors.at(name + ".values").tensor;
    ASSERT_EQ(blocks.type, static_cast<uint32_t>(type));
    std::vector<float> want(values.data.size() / sizeof(float));
    std::memcpy(want.data(), values.data.data(), values.data.size());
    ASSERT_EQ(want.size(), 512u);
    std::vector<float> got(want.size());
    ConvertToFloat32(type, blocks.data.data(), absl::MakeSpan(got));
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(BitsFromFloat(got[i]), BitsFromFloat(want[i]))
          << name << " element " << i;
    }
  }
}

TEST(UnpackQuantColumnTest, EveryColumnOfAStripKeepsItsValuesToTheBit) {
  constexpr int64_t k = 512;
  std::mt19937 random(3);
  for (const WeightType type : kBlockTypes) {
    const auto bytes = static_cast<size_t>(WeightTypeBytes(type, k));
    std::vector<std::vector<uint8_t>> columns(kQuantColumns);
    const uint8_t* pointers[kQuantColumns];
    for (int c = 0; c < kQuantColumns; ++c) {
      columns[c].resize(bytes);
      for (uint8_t& byte : columns[c]) byte = static_cast<uint8_t>(random());
      const auto block = static_cast<size_t>(
          WeightTypeBytes(type, WeightTypeFormat(type).block));
      for (size_t i = 0; i < bytes; i += block) {
        SetUniformScales(type, static_cast<float>(c + 1), &columns[c][i]);
      }
      pointers[c] = columns[c].data();
    }
    const MatrixType packed = *QuantisedMatrixType(type);
    std::vector<uint8_t> strip(static_cast<size_t>(QuantStripBytes(packed, k)));
    PackQuantStrip(type, pointers, k, strip.data());
    for (int c = 0; c < kQuantColumns; ++c) {
      std::vector<float> want(k), got(k);
      DequantiseBlocks(type, pointers[c], absl::MakeSpan(want));
      UnpackQuantColumn(packed, strip.data(), k, c, got.data());
      for (int64_t i = 0; i < k; ++i) {
        ASSERT_EQ(BitsFromFloat(got[i]), BitsFromFloat(want[i]))
            << WeightTypeName(type) << " column " << c << " element " << i;
      }
    }
  }
}

// Root mean square error over that of the values, of normal random values.
double RelativeError(WeightType type, float scale) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> in(256 * 64);
  for (float& value : in) value = normal(random);
  std::vector<uint8_t> bytes(
      static_cast<size_t>(WeightTypeBytes(type, std::ssize(in))));
  EncodeWeights(type, in, bytes.data());
  std::vector<float> out(in.size());
  ConvertToFloat32(type, bytes.data(), absl::MakeSpan(out));
  double error = 0, sum = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    error += std::pow(out[i] - in[i], 2);
    sum += std::pow(in[i], 2);
  }
  return std::sqrt(error / sum);
}

TEST(EncodeWeightsTest, ErrorsAreThoseOfTheType) {
  struct Case {
    WeightType type;
    double most;
  };
  // Slightly above what ggml's own quantisers give on the same distribution.
  const Case cases[] = {
      {WeightType::kFloat32, 0},     {WeightType::kFloat16, 3e-4},
      {WeightType::kBFloat16, 2e-3}, {WeightType::kQ8_0, 6e-3},
      {WeightType::kQ6_K, 0.02},     {WeightType::kQ5_0, 0.05},
      {WeightType::kQ4_K, 0.08},     {WeightType::kQ4_0, 0.1}};
  for (const Case& test : cases) {
    for (const float scale : {0.02f, 1.0f, 50.0f}) {
      const double error = RelativeError(test.type, scale);
      EXPECT_LE(error, test.most) << WeightTypeName(test.type);
      // A mistake in the order of the bits would show as an error near 1; one
      // in the fit as an error that is too good to be true.
      EXPECT_GE(error, test.most / 4) << WeightTypeName(test.type);
    }
  }
}

TEST(EncodeWeightsTest, ZerosAndTinyValuesBecomeZeros) {
  for (const WeightType type :
       {WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kQ5_0,
        WeightType::kQ4_K, WeightType::kQ6_K}) {
    for (const float value : {0.0f, 1e-40f, -1e-20f}) {
      const std::vector<float> in(256, value);
      std::vector<uint8_t> bytes(
          static_cast<size_t>(WeightTypeBytes(type, 256)), 0xff);
      EncodeWeights(type, in, bytes.data());
      std::vector<float> out(in.size());
      ConvertToFloat32(type, bytes.data(), absl::MakeSpan(out));
      for (const float got : out) {
        ASSERT_EQ(got, 0.0f) << WeightTypeName(type) << " of " << value;
      }
    }
  }
}

// The largest scale is that of fp16, 65504; sums over such values must not
// overflow into a block that looks right.
TEST(EncodeWeightsTest, ValuesBeyondTheRangeOfATypeAreReported) {
  struct Case {
    WeightType type;
    float fits;
    float beyond;
  };
  constexpr float kMax = std::numeric_limits<float>::max();
  const Case cases[] = {{WeightType::kFloat16, 65504, 65520},
                        {WeightType::kBFloat16, 3.38e38f, kMax},
                        {WeightType::kQ8_0, 65504.0f * 127, 65520.0f * 127},
                        {WeightType::kQ4_0, 65504.0f * 8, 65520.0f * 8},
                        {WeightType::kQ5_0, 65504.0f * 16, 65520.0f * 16},
                        {WeightType::kQ4_K, 1e6f, 1e9f},
                        {WeightType::kQ6_K, 1e8f, 1e9f}};
  for (const Case& test : cases) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<float> in(512);
    for (float& value : in) value = normal(random);
    std::vector<uint8_t> bytes(
        static_cast<size_t>(WeightTypeBytes(test.type, 512)));
    for (const float sign : {1.0f, -1.0f}) {
      for (const size_t at : {0, 511}) {
        const float kept = std::exchange(in[at], sign * test.fits);
        EXPECT_TRUE(EncodeWeights(test.type, in, bytes.data()))
            << WeightTypeName(test.type) << " " << in[at];
        for (const float beyond : {test.beyond, 1e20f, kMax}) {
          if (beyond < test.beyond) continue;
          in[at] = sign * beyond;
          EXPECT_FALSE(EncodeWeights(test.type, in, bytes.data()))
              << WeightTypeName(test.type) << " " << in[at];
        }
        in[at] = kept;
      }
    }
    // Both ends of the range at once: their distance overflows.
    in[0] = kMax;
    in[1] = -kMax;
    EXPECT_FALSE(EncodeWeights(test.type, in, bytes.data()))
        << WeightTypeName(test.type);
  }
}

TEST(EncodeWeightsTest, DecodedValuesEncodeToThemselvesInQ8) {
  std::mt19937 random(9);
  std::vector<uint8_t> block(34);
  for (int round = 0; round < 200; ++round) {
    for (uint8_t& byte : block) byte = static_cast<uint8_t>(random() % 255 + 1);
    const uint16_t d = Float16FromFloat(std::ldexp(1.0f, -(round % 10)));
    std::memcpy(block.data(), &d, sizeof(d));
    for (int i = 2; i < 34; ++i) {
      if (block[i] == 128) block[i] = 127;  // -128 is never written
    }
    block[2] = 127;  // the scale is that of the largest value
    std::vector<float> values(32);
    ConvertToFloat32(WeightType::kQ8_0, block.data(), absl::MakeSpan(values));
    std::vector<uint8_t> again(34);
    EncodeWeights(WeightType::kQ8_0, values, again.data());
    ASSERT_EQ(again, block);
  }
}

}  // namespace
}  // namespace foretoken
