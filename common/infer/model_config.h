// ModelConfig: the shape of a decoder-only transformer, read from a Hugging
// Face directory's config.json.
//
// Families: Llama, Mistral, Qwen2, Qwen3. What the engine does not support is
// refused while parsing, by file, field and value: nothing is ignored that
// would change an output.
#ifndef FORETOKEN_COMMON_INFER_MODEL_CONFIG_H_
#define FORETOKEN_COMMON_INFER_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/json.h"
#include "common/base/types.h"

namespace foretoken {

enum class ModelFamily { kLlama, kMistral, kQwen2, kQwen3 };

struct RopeScaling {
  enum class Type { kNone, kLinear, kLlama3 };
  Type type = Type::kNone;
  float factor = 1.0f;
  float low_freq_factor = 1.0f;   // llama3 only
  float high_freq_factor = 4.0f;  // llama3 only
  int32_t original_max_positions = 0;  // llama3 only
};

struct ModelConfig {
  ModelFamily family = ModelFamily::kLlama;
  int32_t d_model = 0;
  int32_t n_layers = 0;
  int32_t n_heads = 0;
  int32_t n_kv_heads = 0;  // divides n_heads
  int32_t head_dim = 0;    // even; n_heads * head_dim need not be d_model
  int32_t d_ff = 0;
  int32_t vocab_size = 0;
  int32_t max_positions = 0;  // context limit, prompt and output together
  float rms_norm_eps = 1e-5f;
  float rope_theta = 10000.0f;
  RopeScaling rope_scaling;
  bool tied_embeddings = false;
  bool qkv_bias = false;      // q, k and v projections
  bool output_bias = false;   // o projection (Llama's attention_bias)
  bool mlp_bias = false;      // gate, up and down projections
  bool qk_norm = false;       // RMSNorm per head on q and k (Qwen3)
  std::vector<TokenId> eos_tokens;
  TokenId bos_token = -1;     // -1: none

  // InvalidArgument or Unimplemented, naming `file` and field.
  static absl::StatusOr<ModelConfig> FromJson(const Json& json,
                                              const std::string& file);
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_MODEL_CONFIG_H_
