#include "common/infer/tensor_layout.h"

#include "absl/strings/str_cat.h"

namespace foretoken {
namespace {

class Lister {
 public:
  void Vector(const std::string& name, int64_t size, TensorRole role,
              WeightTensor& tensor) {
    slots_.push_back({name, 1, size, role, &tensor});
  }
  void Matrix(const std::string& name, int64_t rows, int64_t cols,
              TensorRole role, WeightTensor& tensor) {
    slots_.push_back({name, rows, cols, role, &tensor});
  }
  // A projection: `name`.weight [rows, cols] and, if has_bias, `name`.bias.
  void Linear(const std::string& name, int64_t rows, int64_t cols,
              TensorRole role, WeightTensor& weight, bool has_bias,
              WeightTensor& bias) {
    Matrix(name + ".weight", rows, cols, role, weight);
    if (has_bias) Vector(name + ".bias", rows, TensorRole::kBias, bias);
  }
  std::vector<TensorSlot> Take() { return std::move(slots_); }

 private:
  std::vector<TensorSlot> slots_;
};

// Roles matter to the random generator: residual matrices are scaled down.
void ListLayer(const ModelConfig& config, const std::string& prefix,
               LayerWeights& layer, Lister& list) {
  const int64_t d_model = config.d_model;
  const int64_t q_rows = int64_t{config.n_heads} * config.head_dim;
  const int64_t kv_rows = int64_t{config.n_kv_heads} * config.head_dim;
  constexpr TensorRole kPlain = TensorRole::kMatrix;
  constexpr TensorRole kResidual = TensorRole::kResidualMatrix;
  constexpr TensorRole kNorm = TensorRole::kNorm;

  list.Vector(prefix + "input_layernorm.weight", d_model, kNorm,
              layer.attention_norm);
  list.Linear(prefix + "self_attn.q_proj", q_rows, d_model, kPlain, layer.q,
              config.qkv_bias, layer.q_bias);
  list.Linear(prefix + "self_attn.k_proj", kv_rows, d_model, kPlain, layer.k,
              config.qkv_bias, layer.k_bias);
  list.Linear(prefix + "self_attn.v_proj", kv_rows, d_model, kPlain, layer.v,
              config.qkv_bias, layer.v_bias);
  if (config.qk_norm) {
    list.Vector(prefix + "self_attn.q_norm.weight", config.head_dim, kNorm,
                layer.q_norm);
    list.Vector(prefix + "self_attn.k_norm.weight", config.head_dim, kNorm,
                layer.k_norm);
  }
  list.Linear(prefix + "self_attn.o_proj", d_model, q_rows, kResidual, layer.o,
              config.output_bias, layer.o_bias);
  list.Vector(prefix + "post_attention_layernorm.weight", d_model, kNorm,
              layer.ffn_norm);
  list.Linear(prefix + "mlp.gate_proj", config.d_ff, d_model, kPlain,
              layer.gate, config.mlp_bias, layer.gate_bias);
  list.Linear(prefix + "mlp.up_proj", config.d_ff, d_model, kPlain, layer.up,
              config.mlp_bias, layer.up_bias);
  list.Linear(prefix + "mlp.down_proj", d_model, config.d_ff, kResidual,
              layer.down, config.mlp_bias, layer.down_bias);
}

}  // namespace

std::vector<int64_t> TensorSlot::shape() const {
  if (is_vector()) return {cols};
  return {rows, cols};
}

std::vector<TensorSlot> LayOutTensors(const ModelConfig& config,
                                      ModelTensors& tensors) {
  tensors.layers.resize(config.n_layers);
  Lister list;
  list.Matrix("model.embed_tokens.weight", config.vocab_size, config.d_model,
              TensorRole::kEmbedding, tensors.embedding);
  for (int32_t i = 0; i < config.n_layers; ++i) {
    ListLayer(config, absl::StrCat("model.layers.", i, "."), tensors.layers[i],
              list);
  }
  list.Vector("model.norm.weight", config.d_model, TensorRole::kNorm,
              tensors.final_norm);
  // A tied model uses the embedding as its output matrix.
  if (!config.tied_embeddings) {
    list.Matrix(kOutputTensorName, config.vocab_size, config.d_model,
                TensorRole::kMatrix, tensors.output);
  }
  return list.Take();
}

}  // namespace foretoken
