// Losslessness on the real backends with a tiny random model: whatever shares
// the pass, whatever is drafted, the text is that of plain decoding. The CUDA
// backend runs over its engine's twin.
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/infer/cpu/cpu_backend.h"
#include "common/infer/cpu/cpu_isa.h"
#include "common/infer/cuda/cuda_backend.h"
#include "gtest/gtest.h"
#include "services/verifier/core/verify_engine.h"
#include "tests/support/cuda_twin/device_twin.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/services/verifier/engine_script.h"

namespace foretoken::verifier {
namespace {

using ::foretoken::testing::RunSessions;
using ::foretoken::testing::ScriptResult;

constexpr int32_t kVocab = 211;

struct Case {
  float temperature;
  bool cuda;
  WeightType weights = WeightType::kFloat32;
  std::optional<CpuIsa> isa = std::nullopt;  // of the CPU backend
};

std::unique_ptr<VerifyEngine> MakeEngine(const Case& test, int threads,
                                         int64_t kv_cache_bytes,
                                         VerifyEngineOptions options = {}) {
  ModelConfig config = testing::TinyModelConfig(kVocab);
  if (test.weights != WeightType::kFloat32) {
    // Rows of whole blocks of every type; as many bytes of keys and values.
    config.d_model = 256;
    config.n_heads = 16;
    config.d_ff = 256;
  }
  auto weights = testing::TinyModelWeights(config, test.weights);
  if (test.cuda) {
    CudaOptions gpu;
    gpu.kv_cache_bytes = kv_cache_bytes;
    auto backend = MakeCudaBackend(*weights, MakeDeviceTwin, gpu);
    EXPECT_TRUE(backend.ok()) << backend.status();
    return std::make_unique<VerifyEngine>(options, std::move(*backend));
  }
  CpuOptions cpu;
  cpu.threads = threads;
  cpu.isa = test.isa;
  cpu.kv_cache_bytes = kv_cache_bytes;
  auto backend = MakeCpuBackend(std::move(weights), cpu);
  EXPECT_TRUE(backend.ok()) << backend.status();
  return std::make_unique<VerifyEngine>(options, std::move(*backend));
}

// Enough variety; penalties and top-p in half of them.
std::vector<SessionRequest> Requests(int count, float temperature) {
  std::mt19937 random(count);
  std::vector<SessionRequest> requests;
  for (int i = 0; i < count; ++i) {
    SessionRequest request;
    request.tokens.resize(1 + random() % 90);
    for (TokenId& token : request.tokens) token = random() % kVocab;
    request.prompt_length = static_cast<int64_t>(request.tokens.size());
    request.max_length = request.prompt_length + 20 + random() % 60;
    request.cache_scope = i % 2 == 0 ? "shared" : "";
    request.sampling.temperature = temperature;
    request.sampling.seed = random();
    if (i % 2 == 1) {
      request.sampling.top_p = 0.9f;
      request.sampling.repetition_penalty = 1.15f;
      request.sampling.presence_penalty = 0.3f;
      request.sampling.frequency_penalty = 0.2f;
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<std::vector<TokenId>> PlainOutputs(
    const Case& test, const std::vector<SessionRequest>& requests) {
  auto engine = MakeEngine(test, 1, 0);
  std::vector<std::vector<TokenId>> outputs;
  for (const SessionRequest& request : requests) {  // alone, one by one
    outputs.push_back(RunSessions(*engine, {request}, {{}}, 0, 1)[0].output);
  }
  return outputs;
}

class BackendLosslessTest : public ::testing::TestWithParam<Case> {};

TEST_P(BackendLosslessTest, DraftsAndBatchMatesChangeNoToken) {
  const auto requests = Requests(16, GetParam().temperature);
  const auto want = PlainOutputs(GetParam(), requests);
  for (const int mates : {1, 3, 16}) {
    VerifyEngineOptions options;
    options.max_rows_per_pass = 150;
    options.prefill_chunk = 23;
    auto engine = MakeEngine(GetParam(), mates == 3 ? 2 : 1, 0, options);
    int64_t accepted = 0;
    for (size_t begin = 0; begin < requests.size(); begin += mates) {
      const size_t end = std::min(requests.size(), begin + mates);
      const std::vector<SessionRequest> batch(requests.begin() + begin,
                                              requests.begin() + end);
      const std::vector<std::vector<TokenId>> truths(want.begin() + begin,
                                                     want.begin() + end);
      const auto results = RunSessions(*engine, batch, truths, 40, mates);
      for (size_t i = 0; i < batch.size(); ++i) {
        ASSERT_EQ(results[i].output, truths[i])
            << "request " << begin + i << " of batches of " << mates;
        accepted += results[i].accepted;
      }
    }
    EXPECT_GT(accepted, 50);  // drafts really were taken
  }
}

TEST_P(BackendLosslessTest, PreemptionChangesNoToken) {
  const auto requests = Requests(10, GetParam().temperature);
  const auto want = PlainOutputs(GetParam(), requests);
  // 8 pages of 32 tokens, K and V, 2 layers, 2 heads of 16 (32 on a device),
  // bf16: a request takes up to 6, and is admitted before it needs them.
  const int64_t page_bytes = 32 * 2 * 2 * 2 * (GetParam().cuda ? 32 : 16) * 2;
  VerifyEngineOptions options;
  options.admission_reserve = 1;
  auto engine = MakeEngine(GetParam(), 1, 8 * page_bytes, options);
  const auto results = RunSessions(*engine, requests, want, 30, 9);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(results[i].output, want[i]) << "request " << i;
  }
  EXPECT_GT(engine->snapshot().totals.preemptions, 0);
}

// Every quantised type on the fastest instruction set, one of them on all.
std::vector<Case> Cases() {
  std::vector<Case> cases = {
      {0.0f, false}, {0.8f, false}, {0.0f, true}, {0.8f, true}};
  for (const WeightType type :
       {WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kQ4_1,
        WeightType::kQ5_0, WeightType::kQ5_1, WeightType::kQ4_K,
        WeightType::kQ5_K, WeightType::kQ6_K}) {
    cases.push_back({0.8f, false, type});
  }
  for (const CpuIsa isa : SupportedCpuIsas()) {
    if (isa == SupportedCpuIsas().back()) continue;
    cases.push_back({0.8f, false, WeightType::kQ4_K, isa});
  }
  return cases;
}

std::string CaseName(const ::testing::TestParamInfo<Case>& param) {
  const Case& test = param.param;
  const CpuIsa fastest = SupportedCpuIsas().back();
  return absl::StrCat(
      test.cuda ? "cuda"
                : kCpuIsaNames[static_cast<int>(test.isa.value_or(fastest))],
      "_", WeightTypeName(test.weights),
      test.temperature > 0.0f ? "_sampled" : "_greedy");
}

INSTANTIATE_TEST_SUITE_P(Backends, BackendLosslessTest,
                         ::testing::ValuesIn(Cases()), CaseName);

}  // namespace
}  // namespace foretoken::verifier
