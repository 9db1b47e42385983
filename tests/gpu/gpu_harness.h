// What the GPU's tests are made of: backends over the GPU module or the twin,
// passes, and checks that count their failures. No test framework: this must
// build where there is none.
//
// Owned by one thread.
#ifndef FORETOKEN_TESTS_GPU_GPU_HARNESS_H_
#define FORETOKEN_TESTS_GPU_GPU_HARNESS_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/types.h"
#include "common/infer/backend.h"
#include "common/infer/cuda/cuda_backend.h"
#include "common/infer/model_config.h"
#include "common/infer/model_weights.h"

namespace foretoken::gpu_tests {

struct Context {
  bool twin = false;   // the CPU's twin in the place of a GPU
  bool quick = false;  // few tokens, for compute-sanitizer
  bool tiny = false;   // the twin's shapes on a GPU
  // False: no backend has them, whatever a check asks for.
  bool graphs = true, overlap = true;
  int32_t device = 0;
  std::vector<std::string> failures;  // of the check that runs

  bool small() const { return twin || tiny; }
  // Notes a failure if `good` is false; at most the first few are kept.
  bool Expect(bool good, const std::string& what);
  bool ExpectOk(const absl::Status& status, const std::string& what);
};

using Logits = std::vector<float>;

bool SameBits(const Logits& a, const Logits& b);

// A shape with grouped heads and several blocks of everything; a small one for
// `small()`.
ModelConfig TestConfig(const Context& context);

// `device`, if given, becomes the device's name.
absl::StatusOr<std::unique_ptr<Backend>> MakeGpuBackend(
    const Context& context, const ModelWeights& weights, CudaOptions options,
    std::string* device = nullptr);
// The same with random weights.
absl::StatusOr<std::unique_ptr<Backend>> MakeGpuBackend(
    const Context& context, const ModelConfig& config, CudaOptions options,
    WeightType type = WeightType::kBFloat16);
absl::StatusOr<std::unique_ptr<Backend>> MakeReference(
    std::unique_ptr<ModelWeights> weights);  // fp32 on the CPU

std::vector<TokenId> RandomTokens(int count, const ModelConfig& config,
                                  std::mt19937& random);
std::vector<int32_t> Chain(int rows);

// One pass of one session; the tokens of its rows.
absl::StatusOr<std::vector<SampledToken>> RunRows(
    Backend& backend, SessionId session, absl::Span<const TokenId> tokens,
    absl::Span<const int32_t> parents, const SamplingState* sampling = nullptr,
    RowOutputs outputs = RowOutputs::kAllRows);
absl::StatusOr<Logits> LogitsOf(Backend& backend, SessionId session,
                                int32_t row);
// A new session with `tokens` committed, in chunks.
absl::StatusOr<SessionId> OpenWith(Backend& backend,
                                   absl::Span<const TokenId> tokens, int chunk);
// The logits after each of `tokens`, one pass a token.
absl::StatusOr<std::vector<Logits>> OneByOne(Backend& backend,
                                             absl::Span<const TokenId> tokens);

}  // namespace foretoken::gpu_tests

#endif  // FORETOKEN_TESTS_GPU_GPU_HARNESS_H_
