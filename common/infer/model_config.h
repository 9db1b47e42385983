// ModelConfig: the shape of a decoder-only transformer, read from config.json
// and generation_config.json of a Hugging Face directory or from the metadata
// of a GGUF file (gguf_model.h).
//
// Families: Llama, Mistral, Qwen2, Qwen3. Unsupported features are refused
// while parsing, with file, field and value: no field that would change the
// output is ignored. Both layouts of the rotary fields are supported: the older
// `rope_theta` + `rope_scaling` and the newer `rope_parameters`.
//
// A plain value; thread-compatible.
#ifndef FORETOKEN_COMMON_INFER_MODEL_CONFIG_H_
#define FORETOKEN_COMMON_INFER_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/json_fwd.h"
#include "common/base/pooling.h"
#include "common/base/types.h"

namespace foretoken {

enum class ModelFamily { kLlama, kMistral, kQwen2, kQwen3 };

// The `model_type` of config.json: "llama", "mistral", "qwen2", "qwen3".
const char* ModelFamilyName(ModelFamily family);

// Scaling of the rotary frequencies. With inv_freq[i] = theta^(-2i / head_dim):
// kLinear divides each by `factor`; kLlama3 divides those whose wavelength 2 pi
// / inv_freq exceeds original_max_positions / low_freq_factor, keeps those
// below original_max_positions / high_freq_factor, and interpolates in between.
struct RopeScaling {
  enum class Type { kNone, kLinear, kLlama3 };
  Type type = Type::kNone;
  float factor = 1.0f;
  float low_freq_factor = 1.0f;        // llama3 only
  float high_freq_factor = 4.0f;       // llama3 only; > low_freq_factor
  int32_t original_max_positions = 0;  // llama3 only
  // GGUF's rope_freqs: a divisor of each frequency besides, [head_dim / 2];
  // empty: none.
  std::vector<float> divisors;
};

struct ModelConfig {
  // Maximum sizes. Products of any two fit into int64 with room to spare.
  static constexpr int32_t kMaxModelWidth = 1 << 16;  // d_model
  static constexpr int32_t kMaxLayers = 1024;
  static constexpr int32_t kMaxHeads = 1024;
  static constexpr int32_t kMaxHeadDim = 1024;
  static constexpr int32_t kMaxFeedForward = 1 << 20;  // d_ff
  static constexpr int32_t kMaxVocabulary = 1 << 22;
  static constexpr int32_t kMaxPositions = 1 << 24;
  static constexpr int32_t kMaxEndTokens = 64;

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
  bool qkv_bias = false;            // q, k and v projections
  bool output_bias = false;         // o projection (Llama's attention_bias)
  bool mlp_bias = false;            // gate, up and down projections
  bool qk_norm = false;             // RMSNorm per head on q and k (Qwen3)
  std::vector<TokenId> eos_tokens;  // ascending, each once
  TokenId bos_token = -1;           // -1: none
  // Default of embeddings: kMean or kLast; kNone: there is none, since the
  // model's files ask for a pooling that is not served.
  Pooling pooling = Pooling::kMean;

  // Parses config.json. InvalidArgument for a missing, mistyped or out-of-range
  // field, Unimplemented for one that asks for an unsupported feature; both
  // name `file`, the field and its value. Never crashes on any JSON.
  static absl::StatusOr<ModelConfig> FromJson(const Json& json,
                                              const std::string& file);

  // Overrides eos_token_id and bos_token_id with those of
  // generation_config.json, if given. Its sampling defaults are not applied.
  absl::Status MergeGenerationConfig(const Json& json, const std::string& file);

  // Checks the limits above and the consistency of the fields, for a config
  // that was not read from a file. InvalidArgument names the first bad field.
  absl::Status Validate() const;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_MODEL_CONFIG_H_
