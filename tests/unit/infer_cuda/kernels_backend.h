// The CUDA backend over the kernels' own source on the CPU.
#ifndef FORETOKEN_TESTS_UNIT_INFER_CUDA_KERNELS_BACKEND_H_
#define FORETOKEN_TESTS_UNIT_INFER_CUDA_KERNELS_BACKEND_H_

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "common/infer/cuda/cuda_backend.h"
#include "common/infer/cuda/status_from_device.h"
#include "common/infer/model_weights.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/infer/one_by_one.h"
#include "tests/unit/infer/tiny_backend.h"

extern "C" {
uint32_t ForetokenDeviceAbi();
foretoken::DeviceStatus ForetokenCreateDeviceEngine(
    const foretoken::DeviceShape* shape,
    const foretoken::DeviceOptions* options, foretoken::DeviceEngine** engine);
void ForetokenDeleteDeviceEngine(foretoken::DeviceEngine* engine);
}

namespace foretoken::testing {
inline absl::StatusOr<DeviceEnginePtr> MakeEngine(
    const DeviceShape& shape, const DeviceOptions& options) {
  DeviceEngine* engine = nullptr;
  const DeviceStatus status =
      ForetokenCreateDeviceEngine(&shape, &options, &engine);
  DeviceEnginePtr owned(engine, ForetokenDeleteDeviceEngine);
  if (!status.ok()) return StatusFromDevice(status, "engine");
  return owned;
}

inline CudaOptions SmallOptions(bool graphs = true) {
  CudaOptions options;
  options.max_rows = 320;
  options.max_sessions = 32;
  options.kv_cache_bytes = int64_t{2} << 20;
  options.graphs = graphs;
  return options;
}

inline std::unique_ptr<Backend> MakeKernels(const ModelWeights& weights,
                                            const CudaOptions& options) {
  auto backend = MakeCudaBackend(weights, MakeEngine, options);
  EXPECT_THAT(backend, IsOk());
  return *std::move(backend);
}

inline std::unique_ptr<Backend> MakeKernels(const ModelConfig& config,
                                            const CudaOptions& options) {
  const auto weights = ModelWeights::Random(config, WeightType::kBFloat16, 7);
  EXPECT_THAT(weights, IsOk());
  return MakeKernels(**weights, options);
}

// Logits after each token, in two passes, so that the second reads pages.
inline std::vector<Bits> RunChain(Backend& backend,
                                  const std::vector<TokenId>& tokens) {
  const SessionId session = backend.Open("", {})->session;
  std::vector<Bits> logits;
  const size_t half = tokens.size() * 2 / 3;
  for (const std::vector<TokenId>& part :
       {std::vector<TokenId>(tokens.begin(), tokens.begin() + half),
        std::vector<TokenId>(tokens.begin() + half, tokens.end())}) {
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
      const Bits& now = logits.back();
      EXPECT_EQ(result.outputs[0][i].token,
                std::max_element(now.begin(), now.end()) - now.begin());
    }
    EXPECT_THAT(backend.Commit(session, rows), IsOk());
  }
  EXPECT_THAT(backend.Close(session), IsOk());
  return logits;
}

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_UNIT_INFER_CUDA_KERNELS_BACKEND_H_
