// ModelWeights: the checkpoint's tensors as they lie in the memory-mapped
// safetensors files, checked for names and shapes, not yet converted.
//
// Thread-compatible. Tensors borrow the maps that this object owns.
#ifndef FORETOKEN_COMMON_INFER_MODEL_WEIGHTS_H_
#define FORETOKEN_COMMON_INFER_MODEL_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/digest.h"
#include "common/infer/model_config.h"

namespace foretoken {

enum class WeightType { kFloat32, kFloat16, kBFloat16 };

// Row-major [rows, cols]; a vector has rows == 1. Empty (data == nullptr)
// where the model has no such tensor.
struct WeightTensor {
  const uint8_t* data = nullptr;
  WeightType type = WeightType::kFloat32;
  int64_t rows = 0;
  int64_t cols = 0;
  bool present() const { return data != nullptr; }
  // Converts elements [begin, begin + out.size()) to fp32.
  void CopyTo(int64_t begin, absl::Span<float> out) const;
};

struct LayerWeights {
  WeightTensor attention_norm;                // [d_model]
  WeightTensor q, k, v;                       // [heads * head_dim, d_model]
  WeightTensor q_bias, k_bias, v_bias;        // if qkv_bias
  WeightTensor q_norm, k_norm;                // [head_dim], if qk_norm
  WeightTensor o, o_bias;                     // [d_model, n_heads * head_dim]
  WeightTensor ffn_norm;                      // [d_model]
  WeightTensor gate, up;                      // [d_ff, d_model]
  WeightTensor gate_bias, up_bias;            // if mlp_bias
  WeightTensor down, down_bias;               // [d_model, d_ff]
};

class ModelWeights {
 public:
  virtual ~ModelWeights() = default;

  // Opens `directory`: config.json, generation_config.json if there,
  // model.safetensors or model.safetensors.index.json with its shards.
  // Errors name file, tensor and what was wanted.
  static absl::StatusOr<std::unique_ptr<ModelWeights>> Load(
      const std::string& directory);

  // Seeded random weights of the given shape, for benchmarks and tests.
  static absl::StatusOr<std::unique_ptr<ModelWeights>> Random(
      const ModelConfig& config, WeightType type, uint64_t seed);

  virtual const ModelConfig& config() const = 0;
  virtual const WeightTensor& embedding() const = 0;   // [vocab, d_model]
  virtual const WeightTensor& output() const = 0;      // the same if tied
  virtual const WeightTensor& final_norm() const = 0;  // [d_model]
  virtual absl::Span<const LayerWeights> layers() const = 0;  // [n_layers]

  // SHA-256 over names, types, shapes and bytes of every tensor.
  virtual const Sha256Digest& digest() const = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_MODEL_WEIGHTS_H_
