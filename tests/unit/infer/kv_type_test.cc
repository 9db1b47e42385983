// The KV cache in 8 bits: memory and accuracy. That it is row-invariant is in
// row_invariance_test.cc.
#include "common/infer/cpu/kv_type.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "common/infer/cpu/cpu_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/infer/tiny_backend.h"

namespace foretoken {
namespace {

using namespace ::foretoken::testing;  // NOLINT: helpers of tiny_backend.h
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelConfig KvConfig() {
  ModelConfig config = TinyConfig();
  config.d_model = 96;
  config.head_dim = 64;
  config.max_positions = 1024;
  return config;
}

CpuOptions KvOptions(KvType type) {
  CpuOptions options = Options(2);
  options.precision = Precision::kFloat32;
  options.kv_type = type;
  options.max_rows = 512;
  return options;
}

TEST(KvTypeTest, NamesParse) {
  EXPECT_THAT(KvTypeChoices(), ElementsAre("auto", "bf16", "fp32", "q8_0"));
  FORETOKEN_ASSERT_OK(ParseKvType("auto"));
  EXPECT_FALSE(ParseKvType("auto")->has_value());
  EXPECT_EQ(*ParseKvType("bf16"), KvType::kBFloat16);
  EXPECT_EQ(*ParseKvType("fp32"), KvType::kFloat32);
  EXPECT_EQ(*ParseKvType("q8_0"), KvType::kInt8);
  EXPECT_THAT(ParseKvType("int8").status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--kv-type=int8: want auto|bf16|fp32|q8_0")));
}

// 2 layers, 2 kv heads, K and V, 32 tokens a page.
TEST(KvTypeTest, PagesTakeTheBytesOfTheirType) {
  for (const auto& [type, head_bytes] :
       {std::pair{KvType::kFloat32, 256}, std::pair{KvType::kBFloat16, 128},
        std::pair{KvType::kInt8, 64 + 8}}) {
    const int64_t page = int64_t{2} * 2 * 2 * 32 * head_bytes;
    CpuOptions options = KvOptions(type);
    for (const int64_t slack : {0, -1}) {
      options.kv_cache_bytes = 100 * page + slack;
      const auto backend = MakeBackend(KvConfig(), options);
      EXPECT_EQ(backend->kv_usage().pages_total, slack == 0 ? 100 : 99);
      EXPECT_EQ(backend->kv_bytes_per_token(), page / 32);
    }
  }
}

TEST(KvTypeTest, TheFingerprintTellsTheTypesApart) {
  const auto fingerprint = [](std::optional<KvType> type) {
    CpuOptions options = KvOptions(KvType::kInt8);
    options.kv_type = type;
    return MakeBackend(KvConfig(), options)->numerics_fingerprint();
  };
  EXPECT_THAT(fingerprint(KvType::kInt8), HasSubstr(";kv=q8_0;"));
  EXPECT_THAT(fingerprint(KvType::kBFloat16), HasSubstr(";kv=bf16;"));
  EXPECT_EQ(fingerprint(std::nullopt), fingerprint(KvType::kFloat32));
}

// After 900 tokens of context, relative to the largest logit: 0.003 was seen.
// An element is off by at most half a step of 1/127 of its block's largest,
// which averages out over the dimensions and keys of a head. (Every instruction
// set gives the same bits: isa_equality_test.cc.)
TEST(KvTypeTest, EightBitsAreCloseToFp32) {
  std::mt19937 random(21);
  const ModelConfig config = KvConfig();
  const std::vector<TokenId> tokens = RandomTokens(901, config, random);
  std::vector<Bits> logits;
  for (const KvType type : {KvType::kFloat32, KvType::kInt8}) {
    const auto backend = MakeBackend(config, KvOptions(type));
    const SessionId session = backend->Open("", {})->session;
    for (size_t i = 0; i < 900; i += 300) {
      Append(*backend, session, {tokens.begin() + i, tokens.begin() + i + 300});
    }
    PassSession pass;
    pass.session = session;
    const std::vector<int32_t> parents = {kRootParent};
    pass.tokens = absl::MakeConstSpan(tokens).subspan(900);
    pass.parents = parents;
    PassResult result;
    FORETOKEN_ASSERT_OK(backend->Forward({pass}, result));
    logits.push_back(RowLogits(*backend, session, 0));
  }
  float largest = 0.0f, error = 0.0f;
  for (size_t i = 0; i < logits[0].size(); ++i) {
    largest = std::max(largest, std::fabs(logits[0][i]));
    error = std::max(error, std::fabs(logits[1][i] - logits[0][i]));
  }
  EXPECT_GT(error, 0.0f);
  EXPECT_LE(error / largest, 6e-3f);
}

}  // namespace
}  // namespace foretoken
