// Tiny random models behind the CPU backend, and the passes that its tests run.
#ifndef FORETOKEN_TESTS_UNIT_INFER_TINY_BACKEND_H_
#define FORETOKEN_TESTS_UNIT_INFER_TINY_BACKEND_H_

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "common/infer/cpu/cpu_backend.h"
#include "common/infer/model_weights.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken::testing {

// Head size off the vector width, grouped heads, several attention blocks.
inline ModelConfig TinyConfig() {
  ModelConfig config;
  config.d_model = 48;
  config.n_layers = 2;
  config.n_heads = 6;
  config.n_kv_heads = 2;
  config.head_dim = 10;
  config.d_ff = 72;
  config.vocab_size = 203;
  config.max_positions = 300;
  return config;
}

inline std::unique_ptr<Backend> MakeBackend(
    const ModelConfig& config, const CpuOptions& options,
    WeightType type = WeightType::kFloat32) {
  auto weights = ModelWeights::Random(config, type, 7);
  EXPECT_THAT(weights, IsOk());
  auto backend = MakeCpuBackend(*std::move(weights), options);
  EXPECT_THAT(backend, IsOk());
  return *std::move(backend);
}

inline CpuOptions Options(int threads = 1) {
  CpuOptions options;
  options.threads = threads;
  options.max_rows = 192;
  options.kv_cache_bytes = int64_t{16} << 20;
  return options;
}

inline std::vector<TokenId> RandomTokens(int count, const ModelConfig& config,
                                         std::mt19937& random) {
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = random() % config.vocab_size;
  return tokens;
}

// Parents of a random tree of `rows` rows: shape 0 is a chain, 1 a star, else
// anything.
inline std::vector<int32_t> RandomParents(int rows, int shape,
                                          std::mt19937& random) {
  std::vector<int32_t> parents(rows);
  for (int r = 0; r < rows; ++r) {
    const int32_t any = static_cast<int32_t>(random() % (r + 1)) - 1;
    parents[r] = shape == 0 ? r - 1 : shape == 1 ? -1 : any;
  }
  return parents;
}

inline std::vector<int32_t> Chain(int rows) {
  std::vector<int32_t> parents(rows);
  for (int r = 0; r < rows; ++r) parents[r] = r - 1;
  return parents;
}

using Bits = std::vector<float>;

inline Bits RowLogits(Backend& backend, SessionId session, int32_t row) {
  const auto logits = backend.Logits(session, row);
  EXPECT_THAT(logits, IsOk());
  return Bits(logits->begin(), logits->end());
}

inline bool SameBits(const Bits& a, const Bits& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Runs `tokens` as one chain after the session's context and commits them.
inline void Append(Backend& backend, SessionId session,
                   const std::vector<TokenId>& tokens) {
  PassSession pass;
  pass.session = session;
  pass.tokens = tokens;
  const std::vector<int32_t> parents = Chain(tokens.size());
  pass.parents = parents;
  pass.outputs = RowOutputs::kNone;
  PassResult result;
  FORETOKEN_ASSERT_OK(backend.Forward({pass}, result));
  std::vector<int32_t> rows(tokens.size());
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = i;
  FORETOKEN_ASSERT_OK(backend.Commit(session, rows));
}

// The tokens of `context` and then of the tree's path to `row`.
inline std::vector<TokenId> PathTo(const std::vector<TokenId>& context,
                                   const std::vector<TokenId>& tokens,
                                   const std::vector<int32_t>& parents,
                                   int32_t row) {
  std::vector<TokenId> path;
  for (int32_t r = row; r >= 0; r = parents[r]) path.push_back(tokens[r]);
  path.insert(path.end(), context.rbegin(), context.rend());
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_UNIT_INFER_TINY_BACKEND_H_
