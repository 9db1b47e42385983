// The twin's logits against the fp32 CPU engine: tiny models of every family
// and option, whole checkpoints and random ones.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/infer/cpu/cpu_backend.h"
#include "common/infer/model_weights.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"
#include "tests/unit/infer/tiny_backend.h"
#include "tests/unit/infer_cuda/twin_backend.h"

namespace foretoken {
namespace {

using namespace ::foretoken::testing;  // NOLINT: helpers of tiny_backend.h

// Logits after each of `tokens`, in two passes, so that the second reads keys
// that were committed.
std::vector<Bits> RunChain(Backend& backend, absl::Span<const TokenId> tokens,
                           std::vector<TokenId>& drawn) {
  const SessionId session = backend.Open("", {})->session;
  std::vector<Bits> logits;
  drawn.clear();
  for (const auto& part :
       {tokens.first(tokens.size() / 3), tokens.subspan(tokens.size() / 3)}) {
    PassSession pass;
    pass.session = session;
    pass.tokens = part;
    const std::vector<int32_t> parents = Chain(part.size());
    pass.parents = parents;
    PassResult result;
    EXPECT_THAT(backend.Forward({pass}, result), IsOk());
    std::vector<int32_t> rows(part.size());
    for (size_t i = 0; i < part.size(); ++i) {
      rows[i] = static_cast<int32_t>(i);
      logits.push_back(RowLogits(backend, session, rows[i]));
      drawn.push_back(result.outputs[0][i].token);
    }
    EXPECT_THAT(backend.Commit(session, rows), IsOk());
  }
  EXPECT_THAT(backend.Close(session), IsOk());
  return logits;
}

struct Comparison {
  float relative_error = 0.0f;  // over the largest logit
  int rows_with_margin = 0;     // where the difference cannot change a token
};

Comparison Compare(std::unique_ptr<ModelWeights> weights,
                   const std::vector<TokenId>& tokens) {
  CudaOptions options = TwinOptions();
  options.kv_cache_bytes = 0;
  const auto twin = TryTwinBackend(*weights, options);
  EXPECT_THAT(twin, IsOk());
  CpuOptions cpu;
  cpu.precision = Precision::kFloat32;
  cpu.threads = 1;
  const auto reference = MakeCpuBackend(std::move(weights), cpu);
  EXPECT_THAT(reference, IsOk());
  std::vector<TokenId> got_tokens, want_tokens;
  const std::vector<Bits> got = RunChain(**twin, tokens, got_tokens);
  const std::vector<Bits> want = RunChain(**reference, tokens, want_tokens);
  float largest = 0.0f, difference = 0.0f;
  for (size_t r = 0; r < want.size(); ++r) {
    for (size_t i = 0; i < want[r].size(); ++i) {
      largest = std::max(largest, std::abs(want[r][i]));
      const float off = std::abs(want[r][i] - got[r][i]);
      if (!(off <= difference)) difference = off;  // keeps a NaN
    }
  }
  Comparison comparison;
  comparison.relative_error = difference / largest;
  for (size_t r = 0; r < want.size(); ++r) {
    Bits sorted = want[r];
    std::nth_element(sorted.begin(), sorted.begin() + 1, sorted.end(),
                     std::greater<float>());
    if (sorted[0] - sorted[1] <= 2 * difference) continue;
    ++comparison.rows_with_margin;
    EXPECT_EQ(got_tokens[r], want_tokens[r]) << "row " << r;
  }
  return comparison;
}

std::vector<std::string> GoldenFolders() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(SourcePath("tests/golden/models"))) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class TwinGoldenTest : public ::testing::TestWithParam<std::string> {};

// These models sharpen attention on purpose; what bf16 costs the CPU engine on
// them is 0.006 to 0.044. A wrong model is off by the size of the logits.
TEST_P(TwinGoldenTest, IsTheSameModelAsTheCpuEngines) {
  auto weights =
      ModelWeights::Load(SourcePath("tests/golden/models/" + GetParam()));
  FORETOKEN_ASSERT_OK(weights);
  std::mt19937 random(4);
  const std::vector<TokenId> tokens =
      RandomTokens(30, (*weights)->config(), random);
  const Comparison compared = Compare(*std::move(weights), tokens);
  EXPECT_LE(compared.relative_error, 0.1f);
  EXPECT_GT(compared.rows_with_margin, 0);
}

INSTANTIATE_TEST_SUITE_P(EveryFamilyAndOption, TwinGoldenTest,
                         ::testing::ValuesIn(GoldenFolders()),
                         [](const auto& test) { return test.param; });

TEST(TwinLogitsTest, RandomModelsAreWithinThreeHundredths) {
  std::vector<ModelConfig> configs(4, TinyConfig());
  configs[1].qk_norm = true;
  configs[1].tied_embeddings = true;
  configs[2].qkv_bias = configs[2].output_bias = configs[2].mlp_bias = true;
  configs[3].n_kv_heads = 6;
  configs[3].n_layers = 4;
  std::mt19937 random(5);
  for (const ModelConfig& config : configs) {
    for (const WeightType type :
         {WeightType::kBFloat16, WeightType::kFloat16, WeightType::kFloat32}) {
      auto weights = ModelWeights::Random(config, type, 3);
      FORETOKEN_ASSERT_OK(weights);
      const Comparison compared =
          Compare(*std::move(weights), RandomTokens(80, config, random));
      EXPECT_LE(compared.relative_error, 3e-2f) << WeightTypeName(type);
      EXPECT_GT(compared.rows_with_margin, 10);
    }
  }
}

}  // namespace
}  // namespace foretoken
