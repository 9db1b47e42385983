// Tiny random models for tests that run whole engines on a real backend.
#ifndef FORETOKEN_TESTS_SUPPORT_TINY_MODEL_H_
#define FORETOKEN_TESTS_SUPPORT_TINY_MODEL_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "common/infer/model_config.h"
#include "common/infer/model_weights.h"
#include "gtest/gtest.h"

namespace foretoken::testing {

// Two layers with grouped heads; a context of 512 tokens.
inline ModelConfig TinyModelConfig(int32_t vocab_size) {
  ModelConfig config;
  config.d_model = 64;
  config.n_layers = 2;
  config.n_heads = 4;
  config.n_kv_heads = 2;
  config.head_dim = 16;
  config.d_ff = 96;
  config.vocab_size = vocab_size;
  config.max_positions = 512;
  return config;
}

// The same weights at every call.
inline std::unique_ptr<ModelWeights> TinyModelWeights(
    const ModelConfig& config, WeightType type = WeightType::kFloat32) {
  auto weights = ModelWeights::Random(config, type, 17);
  EXPECT_TRUE(weights.ok()) << weights.status();
  return *std::move(weights);
}

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_SUPPORT_TINY_MODEL_H_
