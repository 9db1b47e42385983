// Every ISA's ops against the scalar ones, at sizes off the vector width:
// lengths are padded with zeros to kCpuPad, as the backend does.
#include "common/infer/cpu/ops.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "common/infer/cpu/cpu_isa.h"
#include "common/infer/cpu/packed_matrix.h"
#include "common/infer/weight_types.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

constexpr int kSizes[] = {1, 7, 15, 16, 17, 31, 33, 64, 100, 257};

// `size` normal numbers, then zeros up to a multiple of kCpuPad.
std::vector<float> Padded(int size, std::mt19937& random, float scale = 1.0f) {
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> out(PadTo(size, kCpuPad), 0.0f);
  for (int i = 0; i < size; ++i) out[i] = normal(random);
  return out;
}

class OpsTest : public ::testing::TestWithParam<CpuIsa> {
 protected:
  const CpuOps& ops_ = **SelectCpuOps(GetParam());
  const CpuOps& scalar_ = **SelectCpuOps(CpuIsa::kScalar);
  std::mt19937 random_{17};
};

TEST_P(OpsTest, ExpIsWithinTwoUnitsInTheLastPlace) {
  std::vector<float> x;
  for (float value = -87.0f; value <= 88.0f; value += 0.0137f) {
    x.push_back(value);
  }
  x.resize(PadTo(x.size(), kCpuPad), 0.0f);
  std::vector<float> out(x.size());
  ops_.exp(x.data(), static_cast<int>(x.size()), out.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp(static_cast<double>(x[i]));
    // 2^-22 is two units in the last place of the smallest mantissa.
    ASSERT_NEAR(out[i] / want, 1.0, std::ldexp(1.0, -22)) << x[i];
  }
}

TEST_P(OpsTest, ExpClampsAndKeepsNan) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> x(kCpuPad, 0.0f);
  x[0] = -inf;
  x[1] = -1000.0f;
  x[2] = 1000.0f;
  x[3] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> out(kCpuPad);
  ops_.exp(x.data(), kCpuPad, out.data());
  EXPECT_LT(out[0], 2e-38f);
  EXPECT_EQ(out[0], out[1]);
  EXPECT_TRUE(std::isfinite(out[2]));
  EXPECT_GT(out[2], 1e38f);
  EXPECT_TRUE(std::isnan(out[3]));
  EXPECT_EQ(out[4], 1.0f);
}

TEST_P(OpsTest, ExpIsTheSameInEveryLane) {
  for (float value : {-3.7f, 0.1f, 55.5f}) {
    const std::vector<float> x(kCpuPad, value);
    std::vector<float> out(kCpuPad);
    ops_.exp(x.data(), kCpuPad, out.data());
    for (int i = 1; i < kCpuPad; ++i) ASSERT_EQ(out[i], out[0]);
  }
}

TEST_P(OpsTest, ExpEqualsScalarToTheBit) {
  std::vector<float> x = Padded(4096, random_, 40.0f);
  x[0] = -INFINITY;
  x[1] = 1e9f;
  std::vector<float> got(x.size()), want(x.size());
  ops_.exp(x.data(), 4096, got.data());
  scalar_.exp(x.data(), 4096, want.data());
  EXPECT_EQ(got, want);
}

TEST_P(OpsTest, RmsNormEqualsScalarToTheBit) {
  for (const int size : kSizes) {
    const std::vector<float> x = Padded(size, random_, 3.0f);
    const std::vector<float> weight = Padded(size, random_);
    const int n = static_cast<int>(x.size());
    std::vector<float> got(n), want(n);
    ops_.rms_norm(x.data(), weight.data(), n, size, 1e-5f, got.data());
    scalar_.rms_norm(x.data(), weight.data(), n, size, 1e-5f, want.data());
    ASSERT_EQ(got, want) << size;
  }
}

TEST_P(OpsTest, ElementwiseOpsEqualScalarToTheBit) {
  for (const int size : kSizes) {
    const std::vector<float> x = Padded(size, random_);
    const int n = static_cast<int>(x.size());
    std::vector<float> got = Padded(size, random_);
    std::vector<float> want = got;
    ops_.add(got.data(), x.data(), n);
    scalar_.add(want.data(), x.data(), n);
    EXPECT_EQ(got, want);
    ops_.scale(got.data(), 0.37f, n);
    scalar_.scale(want.data(), 0.37f, n);
    EXPECT_EQ(got, want);
    std::vector<uint16_t> got16(n), want16(n);
    ops_.to_bf16(x.data(), n, got16.data());
    scalar_.to_bf16(x.data(), n, want16.data());
    EXPECT_EQ(got16, want16);
    for (int i = 0; i < n; ++i) ASSERT_EQ(got16[i], BFloat16FromFloat(x[i]));
  }
}

TEST_P(OpsTest, ToBf16RoundsTiesToEvenAndKeepsNanAndInfinity) {
  const auto bits = [](uint32_t value) {
    float out;
    std::memcpy(&out, &value, sizeof(out));
    return out;
  };
  std::vector<float> x(kCpuPad, 0.0f);
  x[0] = bits(0x3f808000);  // halfway, even below
  x[1] = bits(0x3f818000);  // halfway, even above
  x[2] = bits(0x3f808001);
  x[3] = bits(0x7f7fffff);  // rounds to infinity
  x[4] = bits(0x7f800001);  // NaN whose high half looks infinite
  x[5] = bits(0xff800000);
  x[6] = bits(0x80000001);  // a denormal
  std::vector<uint16_t> out(kCpuPad);
  ops_.to_bf16(x.data(), kCpuPad, out.data());
  EXPECT_EQ(out[0], 0x3f80);
  EXPECT_EQ(out[1], 0x3f82);
  EXPECT_EQ(out[2], 0x3f81);
  EXPECT_EQ(out[3], 0x7f80);
  EXPECT_EQ(out[4], 0x7fc0);
  EXPECT_EQ(out[5], 0xff80);
  EXPECT_EQ(out[6], 0x8000);
}

TEST_P(OpsTest, SwiGluEqualsScalarToTheBit) {
  for (const int size : kSizes) {
    const std::vector<float> gate = Padded(size, random_, 5.0f);
    const std::vector<float> up = Padded(size, random_);
    const int n = static_cast<int>(gate.size());
    std::vector<float> got(n), want(n);
    ops_.swiglu(gate.data(), up.data(), n, got.data());
    scalar_.swiglu(gate.data(), up.data(), n, want.data());
    ASSERT_EQ(got, want) << size;
  }
}

TEST_P(OpsTest, RopeEqualsScalarToTheBitAtAnyLength) {
  for (const int half : {1, 2, 5, 8, 15, 16, 17, 24, 33, 64}) {
    const std::vector<float> c = Padded(half, random_);
    const std::vector<float> s = Padded(half, random_);
    std::vector<float> got = Padded(2 * half, random_);
    std::vector<float> want = got;
    ops_.rope(got.data(), c.data(), s.data(), half);
    scalar_.rope(want.data(), c.data(), s.data(), half);
    EXPECT_EQ(got, want) << half;
  }
}

TEST_P(OpsTest, ArgMaxTakesTheLowestOfEqualsAndNeverNan) {
  for (const int size : {1, 2, 15, 16, 17, 33, 100, 1000}) {
    std::vector<float> x(size);
    for (int trial = 0; trial < 50; ++trial) {
      for (float& value : x) value = static_cast<float>(random_() % 7);
      if (trial % 5 == 0) x[random_() % size] = std::nanf("");
      ASSERT_EQ(ops_.arg_max(x.data(), size), scalar_.arg_max(x.data(), size))
          << size;
    }
  }
  const std::vector<float> nothing(40, -INFINITY);
  EXPECT_EQ(ops_.arg_max(nothing.data(), 40), 0);
  std::vector<float> top_twice(40, 0.0f);
  top_twice[37] = top_twice[21] = 3.0f;
  EXPECT_EQ(ops_.arg_max(top_twice.data(), 40), 21);
}

TEST_P(OpsTest, AttentionEqualsScalarToTheBit) {
  for (const int head_dim : {2, 10, 16, 18, 64, 72, 128}) {
    const int n = static_cast<int>(PadTo(head_dim, kCpuPad));
    for (const int queries : {1, 2, 3, 4, 5, 9}) {
      std::vector<float> keys(n * kAttendKeys), values(n * kAttendKeys);
      std::normal_distribution<float> normal;
      for (float& value : keys) value = normal(random_);
      for (float& value : values) value = normal(random_);
      std::vector<std::vector<float>> query, got, want;
      std::vector<int32_t> counts;
      for (int q = 0; q < queries; ++q) {
        query.push_back(Padded(head_dim, random_));
        std::vector<float> state = Padded(2 + n, random_);
        state[1] = 1.5f;
        state.resize(2 + n);
        got.push_back(state);
        want.push_back(state);
        counts.push_back(q % 3 == 2 ? 32 : 1 + random_() % 31);
      }
      const auto run = [&](const CpuOps& ops,
                           std::vector<std::vector<float>>& states) {
        std::vector<const float*> q;
        std::vector<float*> s;
        for (int i = 0; i < queries; ++i) {
          q.push_back(query[i].data());
          s.push_back(states[i].data());
        }
        ops.attend_fp32({keys.data(), values.data(), head_dim, n, queries,
                         q.data(), counts.data(), s.data()});
      };
      run(ops_, got);
      run(scalar_, want);
      for (int i = 0; i < queries; ++i) {
        ASSERT_EQ(got[i], want[i]) << head_dim << " " << queries << " " << i;
      }
    }
  }
}

TEST_P(OpsTest, AQuerysAttentionDoesNotDependOnItsNeighbours) {
  constexpr int kHeadDim = 40;
  constexpr int kPadded = 48;
  constexpr int kQueries = 9;
  std::normal_distribution<float> normal;
  std::vector<float> fp32(kPadded * kAttendKeys);
  for (float& value : fp32) value = normal(random_);
  std::vector<uint16_t> block(2 * fp32.size());
  for (size_t i = 0; i < block.size(); ++i) {
    block[i] = BFloat16FromFloat(fp32[i % fp32.size()]);
  }
  std::vector<std::vector<float>> query, together, alone;
  std::vector<const float*> q;
  std::vector<float*> s;
  std::vector<int32_t> counts;
  for (int i = 0; i < kQueries; ++i) {
    query.push_back(Padded(kHeadDim, random_));
    together.emplace_back(2 + kPadded, 0.0f);
    counts.push_back(i < 6 ? 20 : 11 + i);
  }
  alone = together;
  for (int i = 0; i < kQueries; ++i) {
    q.push_back(query[i].data());
    s.push_back(together[i].data());
  }
  const uint16_t* values = block.data() + fp32.size();
  ops_.attend_bf16({block.data(), values, kHeadDim, kPadded, kQueries, q.data(),
                    counts.data(), s.data()});
  for (int i = 0; i < kQueries; ++i) {
    float* state = alone[i].data();
    ops_.attend_bf16({block.data(), values, kHeadDim, kPadded, 1, &q[i],
                      &counts[i], &state});
    EXPECT_EQ(together[i], alone[i]) << i;
  }
}

// One block of keys and values in int8, with their scales.
struct Int8Attention {
  Int8Attention(int dims, std::mt19937& random)
      : head_dim(dims),
        n(static_cast<int>(PadTo(dims, kCpuPad))),
        keys(n * kAttendKeys),
        values(n * kAttendKeys),
        key_scales(Scales()),
        value_scales(Scales()) {
    for (int8_t& q : keys) q = static_cast<int8_t>(random() % 255 - 127);
    for (int8_t& q : values) q = static_cast<int8_t>(random() % 255 - 127);
    for (float& s : key_scales) s = 1e-5f * static_cast<float>(random() % 999);
    for (float& s : value_scales) {
      s = 1e-5f * static_cast<float>(random() % 999);
    }
  }
  size_t Scales() const { return PadTo(n, kKvScaleBlock) / kKvScaleBlock * 32; }
  float Key(int d, int j) const {
    return keys[d * kAttendKeys + j] *
           key_scales[d / kKvScaleBlock * kAttendKeys + j];
  }
  float Value(int j, int d) const {
    return values[j * n + d] *
           value_scales[d / kKvScaleBlock * kAttendKeys + j];
  }
  void Run(const CpuOps& ops, const std::vector<std::vector<float>>& query,
           const std::vector<int32_t>& counts,
           std::vector<std::vector<float>>& states) const {
    std::vector<const float*> q;
    std::vector<float*> s;
    for (size_t i = 0; i < query.size(); ++i) {
      q.push_back(query[i].data());
      s.push_back(states[i].data());
    }
    ops.attend_int8({keys.data(), values.data(), head_dim, n,
                     static_cast<int32_t>(query.size()), q.data(),
                     counts.data(), s.data(), key_scales.data(),
                     value_scales.data()});
  }

  int head_dim;
  int n;
  std::vector<int8_t> keys, values;
  std::vector<float> key_scales, value_scales;
};

// Every head size, so also blocks of scales that are not whole.
TEST_P(OpsTest, Int8AttentionIsThatOfTheNumbersItStandsFor) {
  for (const int head_dim : {1, 16, 31, 32, 40, 64, 80, 96, 107, 128, 160}) {
    const Int8Attention block(head_dim, random_);
    std::vector<std::vector<float>> query, got, alone;
    std::vector<int32_t> counts;
    for (int i = 0; i < 9; ++i) {
      query.push_back(Padded(head_dim, random_));
      got.emplace_back(2 + block.n, 0.0f);
      got[i][0] = -std::numeric_limits<float>::infinity();
      counts.push_back(i < 6 ? 20 : 24 + i);
    }
    alone = got;
    std::vector<std::vector<float>> scalar = got;
    block.Run(ops_, query, counts, got);
    block.Run(scalar_, query, counts, scalar);
    EXPECT_EQ(got, scalar) << head_dim;
    for (int i = 0; i < 9; ++i) {
      std::vector<std::vector<float>> one = {alone[i]};
      block.Run(ops_, {query[i]}, {counts[i]}, one);
      EXPECT_EQ(one[0], got[i]) << "depends on its neighbours";
      double sum = 0.0;
      std::vector<double> want(head_dim, 0.0);
      for (int j = 0; j < counts[i]; ++j) {
        double score = 0.0;
        for (int d = 0; d < head_dim; ++d) {
          score += static_cast<double>(query[i][d]) * block.Key(d, j);
        }
        const double weight = std::exp(score - got[i][0]);
        sum += weight;
        for (int d = 0; d < head_dim; ++d) {
          want[d] += weight * block.Value(j, d);
        }
      }
      // A score is a sum of up to 160 products, rounded in fp32.
      ASSERT_NEAR(got[i][1], sum, 1e-4 * sum) << head_dim;
      for (int d = 0; d < head_dim; ++d) {
        ASSERT_NEAR(got[i][2 + d], want[d], 5e-4) << head_dim << " " << d;
      }
    }
  }
}

// Past a query's count lie keys of other rows, or nothing that was ever
// written.
TEST_P(OpsTest, AKeyPastAQuerysCountNeverReachesIt) {
  constexpr int kHeadDim = 16;
  std::vector<float> keys(kHeadDim * kAttendKeys, 0.5f);
  std::vector<float> values(kAttendKeys * kHeadDim, 0.25f);
  for (int j = 5; j < kAttendKeys; ++j) {
    for (int d = 0; d < kHeadDim; ++d) {
      keys[d * kAttendKeys + j] = std::nanf("");
      values[j * kHeadDim + d] = std::nanf("");
    }
  }
  const std::vector<float> query(kHeadDim, 1.0f);
  const std::vector<const float*> queries(4, query.data());
  std::vector<std::vector<float>> states(4, std::vector<float>(2 + kHeadDim));
  std::vector<float*> state;
  for (std::vector<float>& one : states) state.push_back(one.data());
  const std::vector<int32_t> counts = {5, 32, 5, 1};
  ops_.attend_fp32({keys.data(), values.data(), kHeadDim, kHeadDim, 4,
                    queries.data(), counts.data(), state.data()});
  for (const int i : {0, 2, 3}) {
    EXPECT_EQ(states[i][1], static_cast<float>(counts[i]));
    for (int d = 0; d < kHeadDim; ++d) {
      EXPECT_EQ(states[i][2 + d], 0.25f * static_cast<float>(counts[i]));
    }
  }
}

TEST_P(OpsTest, StreamSumAddsEverything) {
  const std::vector<float> ones(1024, 1.0f);
  for (const int64_t ahead : {0, 64, 1 << 20}) {
    EXPECT_EQ(ops_.stream_sum(ones.data(), 1024, ahead), 1024.0f);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, OpsTest,
                         ::testing::ValuesIn(SupportedCpuIsas()),
                         [](const ::testing::TestParamInfo<CpuIsa>& isa) {
                           return std::string((*SelectCpuOps(isa.param))->name);
                         });

}  // namespace
}  // namespace foretoken
