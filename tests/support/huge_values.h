// Weights of one layer in which one token's values (V) are near the largest
// number of fp16 and every other token's are ordinary: what a row must not
// notice of keys that are not its own, though they share its tile and have a
// weight of 0 there.
#ifndef FORETOKEN_TESTS_SUPPORT_HUGE_VALUES_H_
#define FORETOKEN_TESTS_SUPPORT_HUGE_VALUES_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/status_macros.h"
#include "common/base/types.h"
#include "common/infer/model_config.h"
#include "common/infer/model_weights.h"
#include "common/infer/weight_types.h"

namespace foretoken {

class HugeValueWeights : public ModelWeights {
 public:
  static constexpr TokenId kHugeToken = 9;
  static constexpr float kHugeValue = 6e4f;

  // `config` without its other layers; `type`: kFloat16 or kBFloat16.
  static absl::StatusOr<std::unique_ptr<HugeValueWeights>> Create(
      ModelConfig config, WeightType type) {
    config.n_layers = 1;
    config.tied_embeddings = false;
    FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<ModelWeights> base,
                               ModelWeights::Random(config, type, 17));
    return std::unique_ptr<HugeValueWeights>(
        new HugeValueWeights(std::move(base)));
  }

  const ModelConfig& config() const override { return base_->config(); }
  const WeightTensor& embedding() const override { return embedding_; }
  const WeightTensor& output() const override { return base_->output(); }
  const WeightTensor& final_norm() const override {
    return base_->final_norm();
  }
  absl::Span<const LayerWeights> layers() const override { return layers_; }
  const Sha256Digest& digest() const override { return base_->digest(); }

 private:
  // The first dimension is the token's alone, and V reads it with a factor that
  // undoes the norm of its one-hot embedding.
  explicit HugeValueWeights(std::unique_ptr<ModelWeights> base)
      : base_(std::move(base)),
        embedding_(base_->embedding()),
        layers_(base_->layers().begin(), base_->layers().end()) {
    const int64_t d = config().d_model;
    std::vector<float> values = Values(embedding_);
    for (int64_t token = 0; token < embedding_.rows; ++token) {
      values[token * d] = 0.0f;
    }
    for (int64_t i = 0; i < d; ++i) {
      values[kHugeToken * d + i] = i == 0 ? 1.0f : 0.0f;
    }
    Keep(values, embedding_, embedding_bytes_);
    WeightTensor& v = layers_[0].v;
    const float norm = Values(layers_[0].attention_norm)[0];
    const float factor = kHugeValue / (std::sqrt(static_cast<float>(d)) * norm);
    values = Values(v);
    for (int64_t row = 0; row < v.rows; ++row) {
      values[row * d] = row % 2 == 0 ? factor : -factor;
    }
    Keep(values, v, value_bytes_);
  }

  static std::vector<float> Values(const WeightTensor& tensor) {
    std::vector<float> values(tensor.size());
    tensor.CopyTo(0, absl::MakeSpan(values));
    return values;
  }
  static void Keep(const std::vector<float>& values, WeightTensor& tensor,
                   std::vector<uint8_t>& bytes) {
    bytes.resize(tensor.bytes());
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t bits = tensor.type == WeightType::kFloat16
                                ? Float16FromFloat(values[i])
                                : BFloat16FromFloat(values[i]);
      std::memcpy(bytes.data() + 2 * i, &bits, 2);
    }
    tensor.data = bytes.data();
  }

  const std::unique_ptr<ModelWeights> base_;
  WeightTensor embedding_;
  std::vector<LayerWeights> layers_;
  std::vector<uint8_t> embedding_bytes_, value_bytes_;
};

}  // namespace foretoken

#endif  // FORETOKEN_TESTS_SUPPORT_HUGE_VALUES_H_
