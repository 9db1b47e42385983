// The tensors of a model with a given config, under their Hugging Face names.
// The loader, the random generator and the converter all use this list.
//
// Pure functions; thread-safe.
#ifndef FORETOKEN_COMMON_INFER_TENSOR_LAYOUT_H_
#define FORETOKEN_COMMON_INFER_TENSOR_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/infer/model_config.h"
#include "common/infer/model_weights.h"

namespace foretoken {

struct ModelTensors {
  WeightTensor embedding;
  WeightTensor output;  // a copy of `embedding` if tied
  WeightTensor final_norm;
  std::vector<LayerWeights> layers;
};

enum class TensorRole { kEmbedding, kMatrix, kResidualMatrix, kNorm, kBias };

struct TensorSlot {
  std::string name;  // "model.layers.0.self_attn.q_proj.weight"
  int64_t rows = 0;  // 1 for a vector
  int64_t cols = 0;
  TensorRole role = TensorRole::kMatrix;
  WeightTensor* tensor = nullptr;  // points into the given ModelTensors

  bool is_vector() const {
    return role == TensorRole::kNorm || role == TensorRole::kBias;
  }
  // [cols] or [rows, cols].
  std::vector<int64_t> shape() const;
};

// Lists every tensor of the model once; the output matrix only if not tied.
// Sets the number of layers of `tensors`, which must outlive the slots.
std::vector<TensorSlot> LayOutTensors(const ModelConfig& config,
                                      ModelTensors& tensors);

inline constexpr char kOutputTensorName[] = "lm_head.weight";

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_TENSOR_LAYOUT_H_
