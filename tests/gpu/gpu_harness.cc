#include "tests/gpu/gpu_harness.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/infer/cpu/cpu_backend.h"
#include "common/infer/cuda/device_module.h"
#include "tests/support/cuda_twin/device_twin.h"

namespace foretoken::gpu_tests {

bool Context::Expect(bool good, const std::string& what) {
  constexpr size_t kMost = 5;
  if (!good && failures.size() < kMost) failures.push_back(what);
  return good;
}

bool Context::ExpectOk(const absl::Status& status, const std::string& what) {
  return Expect(status.ok(), absl::StrCat(what, ": ", status.ToString()));
}

bool SameBits(const Logits& a, const Logits& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

ModelConfig TestConfig(const Context& context) {
  ModelConfig config;
  config.d_model = context.small() ? 48 : 1024;
  config.n_layers = context.small() ? 2 : 4;
  config.n_heads = context.small() ? 6 : 16;
  config.n_kv_heads = context.small() ? 2 : 4;
  config.head_dim = context.small() ? 10 : 64;
  config.d_ff = context.small() ? 72 : 2816;
  config.vocab_size = context.small() ? 203 : 8009;
  config.max_positions = 2048;
  return config;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeGpuBackend(
    const Context& context, const ModelWeights& weights, CudaOptions options,
    std::string* device) {
  options.device = context.device;
  options.graphs = options.graphs && context.graphs;
  options.overlap = options.overlap && context.overlap;
  const auto named = [&](absl::StatusOr<DeviceEnginePtr> engine) {
    if (engine.ok() && device != nullptr) *device = (*engine)->name();
    return engine;
  };
  if (context.twin) {
    return MakeCudaBackend(
        weights,
        [&](const DeviceShape& shape, const DeviceOptions& of_engine) {
          return named(MakeDeviceTwin(shape, of_engine));
        },
        options);
  }
  FORETOKEN_ASSIGN_OR_RETURN(const DeviceModule module, DeviceModule::Load());
  return MakeCudaBackend(
      weights,
      [&](const DeviceShape& shape, const DeviceOptions& of_engine) {
        return named(module.Create(shape, of_engine));
      },
      options);
}

absl::StatusOr<std::unique_ptr<Backend>> MakeGpuBackend(
    const Context& context, const ModelConfig& config, CudaOptions options,
    WeightType type) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<ModelWeights> weights,
                             ModelWeights::Random(config, type, 11));
  return MakeGpuBackend(context, *weights, options);
}

absl::StatusOr<std::unique_ptr<Backend>> MakeReference(
    std::unique_ptr<ModelWeights> weights) {
  CpuOptions options;
  options.precision = Precision::kFloat32;
  return MakeCpuBackend(std::move(weights), options);
}

std::vector<TokenId> RandomTokens(int count, const ModelConfig& config,
                                  std::mt19937& random) {
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) {
    token = static_cast<TokenId>(random() % config.vocab_size);
  }
  return tokens;
}

std::vector<int32_t> Chain(int rows) {
  std::vector<int32_t> parents(rows);
  std::iota(parents.begin(), parents.end(), -1);
  return parents;
}

absl::StatusOr<std::vector<SampledToken>> RunRows(
    Backend& backend, SessionId session, absl::Span<const TokenId> tokens,
    absl::Span<const int32_t> parents, const SamplingState* sampling,
    RowOutputs outputs) {
  PassSession pass;
  pass.session = session;
  pass.tokens = tokens;
  pass.parents = parents;
  pass.sampling = sampling;
  pass.outputs = outputs;
  PassResult result;
  FORETOKEN_RETURN_IF_ERROR(backend.Forward({pass}, result));
  return std::move(result.outputs[0]);
}

absl::StatusOr<Logits> LogitsOf(Backend& backend, SessionId session,
                                int32_t row) {
  FORETOKEN_ASSIGN_OR_RETURN(const absl::Span<const float> logits,
                             backend.Logits(session, row));
  return Logits(logits.begin(), logits.end());
}

absl::StatusOr<SessionId> OpenWith(Backend& backend,
                                   absl::Span<const TokenId> tokens,
                                   int chunk) {
  FORETOKEN_ASSIGN_OR_RETURN(const OpenedSession opened, backend.Open("", {}));
  for (size_t done = 0; done < tokens.size();) {
    const size_t rows = std::min<size_t>(chunk, tokens.size() - done);
    const std::vector<int32_t> parents = Chain(static_cast<int>(rows));
    FORETOKEN_RETURN_IF_ERROR(RunRows(backend, opened.session,
                                      tokens.subspan(done, rows), parents,
                                      nullptr, RowOutputs::kNone)
                                  .status());
    std::vector<int32_t> path(rows);
    std::iota(path.begin(), path.end(), 0);
    FORETOKEN_RETURN_IF_ERROR(backend.Commit(opened.session, path));
    done += rows;
  }
  return opened.session;
}

absl::StatusOr<std::vector<Logits>> OneByOne(Backend& backend,
                                             absl::Span<const TokenId> tokens) {
  FORETOKEN_ASSIGN_OR_RETURN(const OpenedSession opened, backend.Open("", {}));
  std::vector<Logits> all;
  for (const TokenId token : tokens) {
    FORETOKEN_RETURN_IF_ERROR(
        RunRows(backend, opened.session, {token}, {-1}).status());
    FORETOKEN_ASSIGN_OR_RETURN(Logits logits,
                               LogitsOf(backend, opened.session, 0));
    all.push_back(std::move(logits));
    FORETOKEN_RETURN_IF_ERROR(backend.Commit(opened.session, {0}));
  }
  FORETOKEN_RETURN_IF_ERROR(backend.Close(opened.session));
  return all;
}

}  // namespace foretoken::gpu_tests
