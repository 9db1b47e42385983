// Whole passes on every instruction set of this machine: logits equal to the
// bit wherever the numerics fingerprint is equal.
#include <random>
#include <string>
#include <vector>

#include "common/infer/cpu/cpu_backend.h"
#include "common/infer/cpu/cpu_isa.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/infer/tiny_backend.h"

namespace foretoken {
namespace {

using namespace ::foretoken::testing;  // NOLINT: helpers of tiny_backend.h
using ::testing::HasSubstr;

struct Case {
  std::string name;
  WeightType type;
  Precision precision;
  KvType kv_type;
  bool own_bf16 = false;  // avx512bf16 has other bits
};

struct Numerics {
  std::string fingerprint;
  std::vector<Bits> logits;
};

class IsaEqualityTest : public ::testing::TestWithParam<Case> {
 protected:
  // Heads of half a block of scales more than one; every optional part of a
  // layer.
  static ModelConfig Config() {
    ModelConfig config = TinyConfig();
    config.family = ModelFamily::kQwen3;
    config.qk_norm = true;
    config.d_model = 256;
    config.n_heads = 8;
    config.head_dim = GetParam().type == WeightType::kFloat32 ? 42 : 64;
    config.d_ff = 512;
    return config;
  }

  // A context in two passes, then a tree: committed keys, keys of the pass, and
  // blocks that are joined of both.
  static Numerics Run(CpuIsa isa) {
    CpuOptions options = Options(2);
    options.isa = isa;
    options.precision = GetParam().precision;
    options.kv_type = GetParam().kv_type;
    const auto backend = MakeBackend(Config(), options, GetParam().type);
    std::mt19937 random(31);
    const SessionId session = backend->Open("", {})->session;
    Append(*backend, session, RandomTokens(70, Config(), random));
    Append(*backend, session, RandomTokens(7, Config(), random));
    const std::vector<TokenId> tokens = RandomTokens(60, Config(), random);
    const std::vector<int32_t> parents = RandomParents(60, 2, random);
    PassSession pass;
    pass.session = session;
    pass.tokens = tokens;
    pass.parents = parents;
    PassResult result;
    EXPECT_THAT(backend->Forward({pass}, result), IsOk());
    Numerics numerics;
    numerics.fingerprint = backend->numerics_fingerprint();
    for (int row = 0; row < 60; ++row) {
      numerics.logits.push_back(RowLogits(*backend, session, row));
    }
    return numerics;
  }
};

TEST_P(IsaEqualityTest, EqualFingerprintsAreEqualBits) {
  const Numerics want = Run(CpuIsa::kScalar);
  EXPECT_THAT(want.fingerprint, HasSubstr(";isa=common;"));
  for (const CpuIsa isa : SupportedCpuIsas()) {
    const std::string name = kCpuIsaNames[static_cast<int>(isa)];
    const Numerics got = Run(isa);
    if (isa == CpuIsa::kAvx512Bf16 && GetParam().own_bf16) {
      EXPECT_THAT(got.fingerprint, HasSubstr(";isa=avx512bf16;"));
      continue;
    }
    EXPECT_EQ(got.fingerprint, want.fingerprint) << name;
    for (size_t row = 0; row < want.logits.size(); ++row) {
      ASSERT_TRUE(SameBits(got.logits[row], want.logits[row]))
          << name << ", row " << row;
    }
  }
}

constexpr Precision kBf16 = Precision::kBFloat16;

INSTANTIATE_TEST_SUITE_P(
    Types, IsaEqualityTest,
    ::testing::Values(
        Case{"fp32", WeightType::kFloat32, Precision::kFloat32,
             KvType::kFloat32},
        Case{"fp32_kv_q8_0", WeightType::kFloat32, Precision::kFloat32,
             KvType::kInt8},
        Case{"bf16", WeightType::kFloat32, kBf16, KvType::kBFloat16, true},
        Case{"q8_0", WeightType::kQ8_0, kBf16, KvType::kBFloat16},
        Case{"q4_0", WeightType::kQ4_0, kBf16, KvType::kBFloat16},
        Case{"q4_1", WeightType::kQ4_1, kBf16, KvType::kFloat32},
        Case{"q5_0", WeightType::kQ5_0, kBf16, KvType::kBFloat16},
        Case{"q5_1", WeightType::kQ5_1, kBf16, KvType::kBFloat16},
        Case{"q4_k", WeightType::kQ4_K, kBf16, KvType::kBFloat16},
        Case{"q4_k_kv_q8_0", WeightType::kQ4_K, kBf16, KvType::kInt8},
        Case{"q5_k", WeightType::kQ5_K, kBf16, KvType::kBFloat16},
        Case{"q6_k", WeightType::kQ6_K, kBf16, KvType::kInt8}),
    [](const ::testing::TestParamInfo<Case>& which) {
      return which.param.name;
    });

}  // namespace
}  // namespace foretoken
