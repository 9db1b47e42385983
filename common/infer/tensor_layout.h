// Which tensors a model of a given config has, under the names that Hugging
// Face checkpoints give them. The loader, the random generator and the
// converter all go by this one list.
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
  WeightTensor* tensor = nullptr;  // into the ModelTensors given

  bool is_vector() const {
    return role == TensorRole::kNorm || role == TensorRole::kBias;
  }
  // [cols] or [rows, cols].
  std::vector<int64_t> shape() const;
};

// Every tensor of the model, each once: the output matrix only if not tied.
// Sets the number of layers of `tensors`; it must outlive the slots.
std::vector<TensorSlot> LayOutTensors(const ModelConfig& config,
                                      ModelTensors& tensors);

inline constexpr char kOutputTensorName[] = "lm_head.weight";

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_TENSOR_LAYOUT_H_
