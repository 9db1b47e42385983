// Products of quantised weights with int8 activations: against a sum in double
// precision over the dequantised values, and to the bit against themselves for
// every number of rows and against the scalar ops on every ISA.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "common/base/thread_pool.h"
#include "common/infer/block_quants.h"
#include "common/infer/cpu/cpu_isa.h"
#include "common/infer/cpu/packed_matrix.h"
#include "common/infer/weight_types.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/infer/avxvnni_evex.h"

namespace foretoken {
namespace {

constexpr WeightType kBlockTypes[] = {
    WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kQ4_1, WeightType::kQ5_0,
    WeightType::kQ5_1, WeightType::kQ4_K, WeightType::kQ5_K, WeightType::kQ6_K};

bool HasMinima(WeightType type) {
  return type == WeightType::kQ4_1 || type == WeightType::kQ5_1 ||
         type == WeightType::kQ4_K || type == WeightType::kQ5_K;
}

bool IsSuper(WeightType type) {
  return WeightTypeFormat(type).block == kSuperBlock;
}

// Rounds x as products with this type want it.
void Round(const CpuOps& ops, WeightType type, const std::vector<float>& x,
           std::vector<Int8Block>& out) {
  (IsSuper(type) ? ops.to_int8_super : ops.to_int8)(
      x.data(), static_cast<int>(x.size()), out.data());
}

struct Product {
  WeightType type;
  int64_t columns = 0;
  int64_t k = 0;
  std::vector<uint8_t> stored;    // [columns] rows of blocks
  std::vector<float> weights;     // [columns][k], dequantised
  std::vector<Int8Block> blocks;  // [rows][k / 32]
  WeightArena arena;
  PackedMatrix matrix;
};

// Blocks of random bits with the scales of that many bytes from the block's
// beginning set to fp16 values of either sign, and some to zero.
void RandomBlocks(WeightType type, std::mt19937& random,
                  std::vector<uint8_t>& bytes) {
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  const bool two = HasMinima(type);
  const int64_t step = WeightTypeFormat(type).block_bytes;
  std::uniform_real_distribution<float> uniform(-0.1f, 0.1f);
  for (size_t at = 0; at < bytes.size(); at += step) {
    uint8_t* scale = bytes.data() + at;
    if (type == WeightType::kQ6_K) scale += step - 2;
    for (int i = 0; i <= (two ? 1 : 0); ++i) {
      const uint16_t half =
          Float16FromFloat(random() % 16 == 0 ? 0.0f : uniform(random));
      std::memcpy(scale + 2 * i, &half, sizeof(half));
    }
  }
}

PackedMatrix Pack(Product& p) {
  ThreadPool pool(2);
  auto matrix = PackedMatrix::PackStored(
      p.columns, p.k, pool, p.arena,
      [&](int64_t column) -> PackedMatrix::StoredColumn {
        return {p.type,
                p.stored.data() + column * WeightTypeBytes(p.type, p.k)};
      });
  EXPECT_THAT(matrix, testing::IsOk());
  return *std::move(matrix);
}

Product MakeProduct(WeightType type, int64_t columns, int64_t k, int64_t rows,
                    std::mt19937& random) {
  Product p;
  p.type = type;
  p.columns = columns;
  p.k = k;
  p.stored.resize(WeightTypeBytes(type, columns * k));
  RandomBlocks(type, random, p.stored);
  p.weights.resize(columns * k);
  ConvertToFloat32(type, p.stored.data(), absl::MakeSpan(p.weights));
  std::normal_distribution<float> normal;
  std::vector<float> x(rows * k);
  for (float& value : x) value = normal(random);
  // The largest products that there are: no ISA may saturate.
  for (int64_t i = 0; i < k; ++i) x[i] = i % 3 == 0 ? -1.0f : 1.0f;
  p.blocks.resize(rows * k / kQuantBlock);
  Round(*ScalarOps(), type, x, p.blocks);
  p.matrix = Pack(p);
  return p;
}

std::vector<float> Multiply(const CpuOps& ops, const Product& p, int64_t block,
                            int64_t first, int64_t rows,
                            bool few_rows_fetch = true) {
  std::vector<float> tile(rows * kGemmColumns, NAN);
  GemmArgs args;
  args.x = p.blocks.data() + first * p.k / kQuantBlock;
  args.x_stride = p.k / kQuantBlock * static_cast<int64_t>(sizeof(Int8Block));
  args.weights = p.matrix.block(block);
  args.weight_bytes = p.matrix.block_bytes(block);
  args.rows = static_cast<int32_t>(rows);
  args.tile = tile.data();
  args.few_rows_fetch = few_rows_fetch;
  ops.gemm[static_cast<int>(p.matrix.type(block))](args);
  return tile;
}

class QuantGemmTest
    : public ::testing::TestWithParam<std::tuple<const CpuOps*, WeightType>> {
 protected:
  const CpuOps& ops_ = *std::get<0>(GetParam());
  const WeightType type_ = std::get<1>(GetParam());
  const int64_t block_ = WeightTypeFormat(type_).block;
  std::mt19937 random_{5};
};

TEST_P(QuantGemmTest, IsTheSumOfDequantisedProducts) {
  for (const int64_t k : {block_, 3 * block_, 7 * block_}) {
    for (const int64_t columns : {1, 31, 33, 64, 130}) {
      const int64_t rows = 1 + random_() % 14;
      const Product p = MakeProduct(type_, columns, k, rows, random_);
      ASSERT_EQ(p.matrix.blocks(), (columns + 63) / 64);
      ASSERT_EQ(p.matrix.k(), k);
      ASSERT_EQ(p.matrix.input(), IsSuper(type_) ? ActivationType::kInt8Super
                                                 : ActivationType::kInt8);
      for (int64_t c = 0; c < p.matrix.blocks() * 64; ++c) {
        const std::vector<float> tile = Multiply(ops_, p, c / 64, 0, rows);
        for (int64_t r = 0; r < rows; ++r) {
          double want = 0.0;
          double size = 0.0;
          for (int64_t i = 0; i < k && c < columns; ++i) {
            const Int8Block& x = p.blocks[(r * k + i) / kQuantBlock];
            const double product =
                static_cast<double>(p.weights[c * k + i]) *
                (static_cast<double>(x.q[i % kQuantBlock]) * x.scale);
            want += product;
            size += std::fabs(product);
          }
          // Weights of types with minima are rounded when dequantised, too;
          // their two parts may be some times as large as their sum.
          ASSERT_NEAR(tile[r * 64 + c % 64], want, 1e-6 + 1e-5 * size)
              << k << " " << columns << " " << rows << " " << c;
        }
      }
    }
  }
}

TEST_P(QuantGemmTest, ARowIsTheSameToTheBitAmongAnyNumberOfRows) {
  constexpr int64_t kRows = 512;
  // More than a chunk of the longest strips.
  const Product p = MakeProduct(type_, 64, 2560, kRows, random_);
  std::vector<float> alone;
  for (int64_t r = 0; r < kRows; ++r) {
    const std::vector<float> row = Multiply(ops_, p, 0, r, 1);
    alone.insert(alone.end(), row.begin(), row.end());
  }
  const auto same = [&](int64_t first, int64_t rows) {
    const std::vector<float> tile = Multiply(ops_, p, 0, first, rows);
    return std::memcmp(tile.data(), alone.data() + first * kGemmColumns,
                       tile.size() * sizeof(float)) == 0;
  };
  for (int64_t rows = 1; rows <= 64; ++rows) {
    ASSERT_TRUE(same(rows, rows)) << rows;
  }
  for (const int64_t rows : {95, 96, 97, 257, 512}) {
    ASSERT_TRUE(same(kRows - rows, rows)) << rows;
  }
}

TEST_P(QuantGemmTest, EqualsScalarToTheBit) {
  const Product p = MakeProduct(type_, 64, 1280, 13, random_);
  const std::vector<float> got = Multiply(ops_, p, 0, 0, 13);
  const std::vector<float> want = Multiply(*ScalarOps(), p, 0, 0, 13);
  EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)),
            0);
}

TEST_P(QuantGemmTest, FetchingAheadChangesNoBit) {
  const Product p = MakeProduct(type_, 130, 9 * block_, 8, random_);
  for (int64_t rows = 1; rows <= 8; ++rows) {
    for (int64_t block = 0; block < p.matrix.blocks(); ++block) {
      const std::vector<float> fetched =
          Multiply(ops_, p, block, 0, rows, true);
      const std::vector<float> plain = Multiply(ops_, p, block, 0, rows, false);
      ASSERT_EQ(fetched, plain) << rows;
    }
  }
}

// The largest quants, scales and minima with activations near their largest, of
// one sign in a row: no ISA may saturate, or round what is exact.
TEST_P(QuantGemmTest, LargestSumsEqualScalar) {
  constexpr int64_t kRows = 9;
  const int64_t k = 2 * std::max<int64_t>(block_, kSuperBlock);
  Product p = MakeProduct(type_, 64, k, kRows, random_);
  std::fill(p.stored.begin(), p.stored.end(), uint8_t{0xff});
  const int64_t step = WeightTypeFormat(type_).block_bytes;
  const uint16_t half = Float16FromFloat(0.5f);
  for (size_t at = 0; at < p.stored.size(); at += step) {
    uint8_t* block = p.stored.data() + at;
    if (type_ == WeightType::kQ6_K) {
      std::fill_n(block + 192, 16, uint8_t{0x80});  // -128
      std::memcpy(block + step - 2, &half, 2);
    } else {
      std::memcpy(block, &half, 2);
      if (HasMinima(type_)) std::memcpy(block + 2, &half, 2);
    }
  }
  p.matrix = Pack(p);
  std::vector<float> x(kRows * k);
  for (int64_t i = 0; i < kRows * k; ++i) {
    x[i] = (random_() % 2 == 0 ? 127.0f : 126.0f) * (i / k % 2 == 0 ? 1 : -1);
  }
  Round(ops_, type_, x, p.blocks);
  ConvertToFloat32(type_, p.stored.data(), absl::MakeSpan(p.weights));
  const std::vector<float> got = Multiply(ops_, p, 0, 0, kRows);
  const std::vector<float> want = Multiply(*ScalarOps(), p, 0, 0, kRows);
  EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)),
            0);
  for (int64_t r = 0; r < kRows; ++r) {
    double sum = 0.0;
    double size = 0.0;
    for (int64_t i = 0; i < k; ++i) {
      sum += static_cast<double>(p.weights[i]) * x[r * k + i];
      size += std::fabs(static_cast<double>(p.weights[i]) * x[r * k + i]);
    }
    EXPECT_NEAR(got[r * kGemmColumns], sum, 1e-5 * size) << r;
  }
}

// A matrix that joins columns of a K type with others gives super-blocks to all
// of them.
TEST_P(QuantGemmTest, EveryTypeTakesSuperBlocks) {
  constexpr int64_t kRows = 9;
  constexpr int64_t kK = 2 * kSuperBlock;
  Product p = MakeProduct(type_, 64, kK, kRows, random_);
  const Product other = MakeProduct(WeightType::kQ4_K, 64, kK, kRows, random_);
  ThreadPool pool(2);
  auto joined = PackedMatrix::PackStored(
      128, kK, pool, p.arena,
      [&](int64_t column) -> PackedMatrix::StoredColumn {
        const Product& of = column < 64 ? p : other;
        return {of.type,
                of.stored.data() + column % 64 * WeightTypeBytes(of.type, kK)};
      });
  FORETOKEN_ASSERT_OK(joined);
  EXPECT_EQ(joined->input(), ActivationType::kInt8Super);
  p.matrix = *std::move(joined);
  p.blocks = other.blocks;
  const std::vector<float> got = Multiply(ops_, p, 0, 0, kRows);
  const std::vector<float> want = Multiply(*ScalarOps(), p, 0, 0, kRows);
  EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)),
            0);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < 64; ++c) {
      double sum = 0.0;
      double size = 0.0;
      for (int64_t i = 0; i < kK; ++i) {
        const Int8Block& x = p.blocks[(r * kK + i) / kQuantBlock];
        const double product =
            static_cast<double>(p.weights[c * kK + i]) *
            (static_cast<double>(x.q[i % kQuantBlock]) * x.scale);
        sum += product;
        size += std::fabs(product);
      }
      ASSERT_NEAR(got[r * 64 + c], sum, 1e-6 + 1e-5 * size) << r << " " << c;
    }
  }
}

// Scales that only a hostile or damaged file has, in one column each. Which NaN
// a sum gives is the processor's choice of operand; that it is one is not.
TEST_P(QuantGemmTest, ExtremeScalesEqualScalar) {
  constexpr uint16_t kExtremes[] = {
      0x7c00, 0xfc00,  // infinities
      0x7e00, 0xfe01,  // NaN
      0x0001, 0x83ff,  // subnormal
      0x0400, 0x7bff,  // the smallest and the largest normal value
      0xfbff, 0x8000};
  const int64_t k = 2 * block_;
  Product p = MakeProduct(type_, 64, k, 5, random_);
  const int64_t step = WeightTypeFormat(type_).block_bytes;
  const int64_t column_bytes = WeightTypeBytes(type_, k);
  for (size_t i = 0; i < std::size(kExtremes); ++i) {
    // In the first block of one column, in the last of another, and as the
    // minimum of a third.
    uint8_t* first = p.stored.data() + 3 * i * column_bytes;
    uint8_t* last = first + 2 * column_bytes - step;
    uint8_t* third = first + 2 * column_bytes;
    const int64_t scale = type_ == WeightType::kQ6_K ? step - 2 : 0;
    std::memcpy(first + scale, &kExtremes[i], 2);
    std::memcpy(last + scale, &kExtremes[i], 2);
    if (HasMinima(type_)) std::memcpy(third + 2, &kExtremes[i], 2);
  }
  p.matrix = Pack(p);
  const std::vector<float> got = Multiply(ops_, p, 0, 0, 5);
  const std::vector<float> want = Multiply(*ScalarOps(), p, 0, 0, 5);
  int not_finite = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    not_finite += std::isfinite(want[i]) ? 0 : 1;
    if (std::isnan(want[i])) {
      ASSERT_TRUE(std::isnan(got[i])) << i;
    } else {
      ASSERT_EQ(BitsFromFloat(got[i]), BitsFromFloat(want[i])) << i;
    }
  }
  // Four of the ten, in two or three columns each, in every row.
  EXPECT_GE(not_finite, 5 * 4 * 2);
}

TEST_P(QuantGemmTest, ActivationsThatAreNotFiniteMakeTheRowNan) {
  Product p = MakeProduct(type_, 64, 2 * block_, 2, random_);
  std::vector<float> x(2 * block_, 1.0f);
  x[block_] = std::numeric_limits<float>::infinity();
  Round(ops_, type_, x, p.blocks);
  const std::vector<float> tile = Multiply(ops_, p, 0, 0, 2);
  for (int c = 0; c < kGemmColumns; ++c) {
    EXPECT_TRUE(std::isnan(tile[c]));
    EXPECT_TRUE(std::isfinite(tile[kGemmColumns + c]));
  }
}

// What this machine runs; with AVX-512 VNNI also AVX-VNNI's kernels in that
// encoding.
std::vector<const CpuOps*> TestedOps() {
  std::vector<const CpuOps*> all;
  for (const CpuIsa isa : SupportedCpuIsas()) {
    all.push_back(*SelectCpuOps(isa));
#if defined(__x86_64__)
    if (isa == CpuIsa::kAvx512Vnni) all.push_back(testing::AvxVnniEvexOps());
#endif
  }
  return all;
}

std::string OpsName(const CpuOps* ops) {
#if defined(__x86_64__)
  if (ops == testing::AvxVnniEvexOps()) return "avxvnni_evex";
#endif
  return ops->name;
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, QuantGemmTest,
                         ::testing::Combine(::testing::ValuesIn(TestedOps()),
                                            ::testing::ValuesIn(kBlockTypes)),
                         [](const auto& which) {
                           return OpsName(std::get<0>(which.param)) + "_" +
                                  WeightTypeName(std::get<1>(which.param));
                         });

class ToInt8Test : public ::testing::TestWithParam<CpuIsa> {
 protected:
  const CpuOps& ops_ = **SelectCpuOps(GetParam());
};

TEST_P(ToInt8Test, RoundsToTheNearestOf255StepsOfTheLargestMagnitude) {
  std::mt19937 random(8);
  std::normal_distribution<float> normal;
  for (const float size : {1e-20f, 1e-3f, 1.0f, 1e4f, 1e30f}) {
    std::vector<float> x(kQuantBlock * 3);
    for (float& value : x) value = size * normal(random);
    std::vector<Int8Block> out(3);
    ops_.to_int8(x.data(), static_cast<int>(x.size()), out.data());
    for (int b = 0; b < 3; ++b) {
      const float* from = x.data() + b * kQuantBlock;
      float largest = 0.0f;
      for (int i = 0; i < kQuantBlock; ++i) {
        largest = std::max(largest, std::fabs(from[i]));
      }
      EXPECT_EQ(out[b].scale, largest / 127.0f);
      int sum = 0, half = 0;
      for (int i = 0; i < kQuantBlock; ++i) {
        EXPECT_EQ(out[b].q[i], std::nearbyint(from[i] * (127.0f / largest)));
        sum += out[b].q[i];
        if (i < 16) half += out[b].q[i];
      }
      EXPECT_EQ(out[b].minus_sum, -sum);
      EXPECT_EQ(out[b].minus_half_sums[0], -half);
      EXPECT_EQ(out[b].minus_half_sums[1], half - sum);
      EXPECT_EQ(out[b].minus_pair_sums[0], 0);
      EXPECT_EQ(out[b].minus_pair_sums[1], 0);
      EXPECT_EQ(out[b].scaled_sum, out[b].scale * static_cast<float>(sum));
    }
  }
}

TEST_P(ToInt8Test, ZerosTinyValuesAndOnesThatAreNotFinite) {
  std::vector<float> x(kQuantBlock * 5, 0.0f);
  x[kQuantBlock + 3] = -0x1p-101f;
  x[2 * kQuantBlock + 3] = 0x1p-100f;
  x[3 * kQuantBlock + 31] = -std::numeric_limits<float>::infinity();
  x[4 * kQuantBlock + 1] = std::numeric_limits<float>::quiet_NaN();
  x[4 * kQuantBlock + 2] = std::numeric_limits<float>::infinity();
  std::vector<Int8Block> out(5);
  ops_.to_int8(x.data(), static_cast<int>(x.size()), out.data());
  for (const int b : {0, 1}) {
    EXPECT_EQ(out[b].scale, 0.0f);
    EXPECT_EQ(out[b].q[3], 0);
  }
  EXPECT_EQ(out[2].q[3], 127);
  EXPECT_GT(out[2].scale, 0.0f);
  for (const int b : {3, 4}) {
    EXPECT_TRUE(std::isnan(out[b].scale));
    EXPECT_TRUE(std::isnan(out[b].scaled_sum));
    EXPECT_EQ(out[b].minus_sum, 0);
  }
}

// Their blocks share the scale; in everything else they are as other blocks.
TEST_P(ToInt8Test, SuperBlocksShareTheScaleOfTheirLargestMagnitude) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  std::vector<float> x(kSuperBlock * 3);
  for (float& value : x) value = normal(random);
  x[kSuperBlock + 77] = -50.0f;
  std::vector<Int8Block> out(3 * kSuperBlockParts);
  ops_.to_int8_super(x.data(), static_cast<int>(x.size()), out.data());
  for (int s = 0; s < 3; ++s) {
    float largest = 0.0f;
    for (int i = 0; i < kSuperBlock; ++i) {
      largest = std::max(largest, std::fabs(x[s * kSuperBlock + i]));
    }
    for (int b = s * kSuperBlockParts; b < (s + 1) * kSuperBlockParts; ++b) {
      EXPECT_EQ(out[b].scale, largest / 127.0f);
      int halves[2] = {};
      for (int i = 0; i < kQuantBlock; ++i) {
        EXPECT_EQ(out[b].q[i],
                  std::nearbyint(x[b * kQuantBlock + i] * (127.0f / largest)));
        halves[i / 16] += out[b].q[i];
      }
      const int sum = halves[0] + halves[1];
      EXPECT_EQ(out[b].minus_sum, -sum);
      EXPECT_EQ(out[b].minus_half_sums[0], -halves[0]);
      EXPECT_EQ(out[b].minus_half_sums[1], -halves[1]);
      EXPECT_EQ(out[b].minus_pair_sums[0], out[b / 2 * 2].minus_sum);
      EXPECT_EQ(out[b].minus_pair_sums[1], out[b / 2 * 2 + 1].minus_sum);
      EXPECT_EQ(out[b].scaled_sum, out[b].scale * static_cast<float>(sum));
    }
  }
}

TEST_P(ToInt8Test, SuperBlocksOfZerosAndOnesThatAreNotFinite) {
  std::vector<float> x(kSuperBlock * 3, 0.0f);
  x[kSuperBlock - 1] = 0x1p-101f;
  x[kSuperBlock + 200] = -std::numeric_limits<float>::infinity();
  x[2 * kSuperBlock + 40] = std::numeric_limits<float>::quiet_NaN();
  x[2 * kSuperBlock] = 1.0f;
  std::vector<Int8Block> out(3 * kSuperBlockParts);
  ops_.to_int8_super(x.data(), static_cast<int>(x.size()), out.data());
  for (int b = 0; b < 3 * kSuperBlockParts; ++b) {
    if (b < kSuperBlockParts) {
      EXPECT_EQ(out[b].scale, 0.0f);
    } else {
      EXPECT_TRUE(std::isnan(out[b].scale));
      EXPECT_TRUE(std::isnan(out[b].scaled_sum));
    }
    EXPECT_EQ(out[b].q[31], 0);
    EXPECT_EQ(out[b].minus_sum, 0);
    EXPECT_EQ(out[b].minus_pair_sums[1], 0);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, ToInt8Test,
                         ::testing::ValuesIn(SupportedCpuIsas()),
                         [](const auto& which) {
                           return (*SelectCpuOps(which.param))->name;
                         });

}  // namespace
}  // namespace foretoken
