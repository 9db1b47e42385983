// The matrix product: against a plain sum, and to the bit against itself for
// every number of rows.
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "common/base/thread_pool.h"
#include "common/infer/backend.h"
#include "common/infer/cpu/cpu_isa.h"
#include "common/infer/cpu/packed_matrix.h"
#include "common/infer/weight_types.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

float Rounded(float x, Precision precision) {
  if (precision == Precision::kFloat32) return x;
  return FloatFromBFloat16(BFloat16FromFloat(x));
}

MatrixType TypeOf(Precision precision) {
  return precision == Precision::kFloat32 ? MatrixType::kFloat32
                                          : MatrixType::kBFloat16;
}

struct Product {
  WeightArena arena;
  PackedMatrix matrix;
  std::vector<float> weights;   // [columns][k], rounded
  std::vector<float> x;         // [rows][k], rounded
  std::vector<uint8_t> packed;  // x as the kernel reads it
  int64_t stride = 0;           // bytes
};

Product MakeProduct(Precision precision, int64_t columns, int64_t k,
                    int64_t rows, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Product p;
  p.weights.resize(columns * k);
  for (float& w : p.weights) w = Rounded(normal(random), precision);
  p.x.resize(rows * k);
  for (float& x : p.x) x = Rounded(normal(random), precision);
  ThreadPool pool(2);
  auto matrix = PackedMatrix::Pack(TypeOf(precision), columns, k, pool, p.arena,
                                   [&](int64_t column, float* out) {
                                     for (int64_t i = 0; i < k; ++i)
                                       out[i] = p.weights[column * k + i];
                                   });
  EXPECT_THAT(matrix, testing::IsOk());
  p.matrix = *std::move(matrix);
  const int64_t element = precision == Precision::kFloat32 ? 4 : 2;
  p.stride = p.matrix.k() * element + 4;
  p.packed.assign(rows * p.stride, 0);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < k; ++i) {
      const float value = p.x[r * k + i];
      uint8_t* out = p.packed.data() + r * p.stride + i * element;
      const uint16_t narrow = BFloat16FromFloat(value);
      if (element == 4) {
        std::memcpy(out, &value, 4);
      } else {
        std::memcpy(out, &narrow, 2);
      }
    }
  }
  return p;
}

std::vector<float> Multiply(const CpuOps& ops, Precision precision,
                            const Product& p, int64_t block, int64_t first,
                            int64_t rows, bool few_rows_fetch = true) {
  std::vector<float> tile(rows * kGemmColumns, NAN);
  GemmArgs args;
  args.x = p.packed.data() + first * p.stride;
  args.x_stride = p.stride;
  args.weights = p.matrix.block(block);
  args.weight_bytes = p.matrix.block_bytes(block);
  args.rows = static_cast<int32_t>(rows);
  args.tile = tile.data();
  args.few_rows_fetch = few_rows_fetch;
  ops.gemm[static_cast<int>(TypeOf(precision))](args);
  return tile;
}

struct Case {
  CpuIsa isa;
  Precision precision;
};

class GemmTest : public ::testing::TestWithParam<Case> {
 protected:
  const CpuOps& ops_ = **SelectCpuOps(GetParam().isa);
  const Precision precision_ = GetParam().precision;
  std::mt19937 random_{3};
};

TEST_P(GemmTest, IsTheSumOfProducts) {
  for (const int64_t k : {1, 2, 15, 16, 17, 63, 130, 257, 1000}) {
    for (const int64_t columns : {1, 63, 64, 65, 130}) {
      const int64_t rows = 1 + random_() % 14;
      const Product p = MakeProduct(precision_, columns, k, rows, random_);
      ASSERT_EQ(p.matrix.blocks(), (columns + 63) / 64);
      for (int64_t c = 0; c < p.matrix.blocks() * 64; ++c) {
        const std::vector<float> tile =
            Multiply(ops_, precision_, p, c / 64, 0, rows);
        for (int64_t r = 0; r < rows; ++r) {
          double want = 0.0;
          double size = 0.0;
          for (int64_t i = 0; i < k && c < columns; ++i) {
            const double product =
                static_cast<double>(p.x[r * k + i]) * p.weights[c * k + i];
            want += product;
            size += std::fabs(product);
          }
          // k roundings of 2^-24 of the running sum, at most.
          ASSERT_NEAR(tile[r * 64 + c % 64], want,
                      1e-6 + size * k * std::ldexp(1.0, -24))
              << k << " " << columns << " " << rows << " " << c;
        }
      }
    }
  }
}

TEST_P(GemmTest, ARowIsTheSameToTheBitAmongAnyNumberOfRows) {
  constexpr int64_t kRows = 2048;
  // Off every chunk: 64 and 256 steps of K.
  const Product p = MakeProduct(precision_, 64, 1130, kRows, random_);
  std::vector<float> alone;
  for (int64_t r = 0; r < kRows; ++r) {
    const std::vector<float> row = Multiply(ops_, precision_, p, 0, r, 1);
    alone.insert(alone.end(), row.begin(), row.end());
  }
  const auto same = [&](int64_t first, int64_t rows) {
    const std::vector<float> tile =
        Multiply(ops_, precision_, p, 0, first, rows);
    return std::memcmp(tile.data(), alone.data() + first * kGemmColumns,
                       tile.size() * sizeof(float)) == 0;
  };
  for (int64_t rows = 1; rows <= 70; ++rows) {
    ASSERT_TRUE(same(rows, rows)) << rows;
  }
  for (const int64_t rows : {95, 96, 97, 128, 255, 256, 257, 1000, 2048}) {
    ASSERT_TRUE(same(kRows - rows, rows)) << rows;
  }
}

TEST_P(GemmTest, FetchingAheadChangesNoBit) {
  const Product p = MakeProduct(precision_, 130, 333, 8, random_);
  for (int64_t rows = 1; rows <= 8; ++rows) {
    for (int64_t block = 0; block < p.matrix.blocks(); ++block) {
      const std::vector<float> fetched =
          Multiply(ops_, precision_, p, block, 0, rows, true);
      const std::vector<float> plain =
          Multiply(ops_, precision_, p, block, 0, rows, false);
      ASSERT_EQ(fetched, plain) << rows;
    }
  }
}

// Only the BF16 instructions add a pair in their own order.
TEST_P(GemmTest, EqualsScalarToTheBitWithoutBf16Instructions) {
  if (precision_ == Precision::kBFloat16 &&
      GetParam().isa == CpuIsa::kAvx512Bf16) {
    return;
  }
  const Product p = MakeProduct(precision_, 64, 333, 9, random_);
  EXPECT_EQ(Multiply(ops_, precision_, p, 0, 0, 9),
            Multiply(*ScalarOps(), precision_, p, 0, 0, 9));
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const CpuIsa isa : SupportedCpuIsas()) {
    cases.push_back({isa, Precision::kFloat32});
    cases.push_back({isa, Precision::kBFloat16});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, GemmTest, ::testing::ValuesIn(Cases()),
                         [](const ::testing::TestParamInfo<Case>& which) {
                           return std::string(
                                      (*SelectCpuOps(which.param.isa))->name) +
                                  (which.param.precision == Precision::kBFloat16
                                       ? "_bf16"
                                       : "_fp32");
                         });

}  // namespace
}  // namespace foretoken
