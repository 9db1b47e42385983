#include "common/infer/gguf_model.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/gguf/special_tokens.h"
#include "common/infer/safetensors.h"
#include "common/infer/weight_types.h"

namespace foretoken {
namespace {

constexpr char kTokenEmbedding[] = "token_embd.weight";

struct Architecture {
  const char* name;
  ModelFamily family;
};
constexpr Architecture kArchitectures[] = {
    {"llama", ModelFamily::kLlama},
    {"qwen2", ModelFamily::kQwen2},
    {"qwen3", ModelFamily::kQwen3},
};

absl::Status TensorError(const GgufFiles::Tensor& stored,
                         const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat(stored.file, ": tensor ",
                   PrintableGgufText(stored.tensor.name), " ", what));
}

// Reads the keys of one architecture and remembers them, so that the others
// can be refused.
class Keys {
 public:
  // Every key of the architecture starts with its name.
  Keys(const GgufMetadata& metadata, const std::string& architecture)
      : metadata_(metadata), prefix_(architecture + ".") {}

  absl::Status Required(const char* key, int64_t max, int32_t& out) {
    FORETOKEN_ASSIGN_OR_RETURN(const int64_t value,
                               metadata_.RequiredInteger(Name(key), 1, max));
    // Safe: max is at most INT32_MAX in every call.
    out = static_cast<int32_t>(value);
    return absl::OkStatus();
  }
  // `out` keeps its value if the key is absent.
  absl::Status Optional(const char* key, int64_t min, int64_t max,
                        int32_t& out) {
    FORETOKEN_ASSIGN_OR_RETURN(const std::optional<int64_t> value,
                               metadata_.Integer(Name(key), min, max));
    if (value) out = static_cast<int32_t>(*value);
    return absl::OkStatus();
  }
  absl::Status Optional(const char* key, double min, double max, float& out) {
    FORETOKEN_ASSIGN_OR_RETURN(const std::optional<double> value,
                               metadata_.Number(Name(key), min, max));
    if (value) out = static_cast<float>(*value);
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Text(const char* key, const char* absent) {
    FORETOKEN_ASSIGN_OR_RETURN(const auto value, metadata_.String(Name(key)));
    return std::string(value.value_or(absent));
  }
  // Keys that say nothing about this model, or nothing that tensors do not say.
  void Ignore(const char* key) { Name(key); }

  // The whole key, from now on a known one.
  // Reading a key makes it known, so a key can be neither forgotten nor excused
  // by accident.
  std::string Name(const char* key) {
    known_.push_back(prefix_ + key);
    return known_.back();
  }
  absl::Status Invalid(const char* key, const std::string& want) {
    return metadata_.Invalid(Name(key), want);
  }
  absl::Status Unsupported(const char* key, const std::string& want) {
    return metadata_.Unsupported(Name(key), want);
  }

  // A key that is not known may change how the model computes: ignoring it
  // would give wrong output without an error.
  absl::Status RefuseUnknown() const {
    for (const auto& [key, value] : metadata_.values()) {
      if (absl::StartsWith(key, prefix_) &&
          std::find(known_.begin(), known_.end(), key) == known_.end()) {
        return metadata_.Unsupported(key, "no such key");
      }
    }
    return absl::OkStatus();
  }

 private:
  const GgufMetadata& metadata_;
  const std::string prefix_;
  std::vector<std::string> known_;
};

absl::Status ReadShape(Keys& keys, ModelConfig& config) {
  FORETOKEN_RETURN_IF_ERROR(keys.Required(
      "embedding_length", ModelConfig::kMaxModelWidth, config.d_model));
  FORETOKEN_RETURN_IF_ERROR(
      keys.Required("block_count", ModelConfig::kMaxLayers, config.n_layers));
  FORETOKEN_RETURN_IF_ERROR(keys.Required(
      "feed_forward_length", ModelConfig::kMaxFeedForward, config.d_ff));
  FORETOKEN_RETURN_IF_ERROR(keys.Required(
      "context_length", ModelConfig::kMaxPositions, config.max_positions));
  FORETOKEN_RETURN_IF_ERROR(keys.Required(
      "attention.head_count", ModelConfig::kMaxHeads, config.n_heads));
  // Without the key every head has its own keys and values.
  config.n_kv_heads = config.n_heads;
  FORETOKEN_RETURN_IF_ERROR(keys.Optional("attention.head_count_kv", 1,
                                          config.n_heads, config.n_kv_heads));
  if (config.n_heads % config.n_kv_heads != 0) {
    return keys.Invalid(
        "attention.head_count_kv",
        absl::StrCat("a divisor of attention.head_count ", config.n_heads));
  }
  // A default that key_length may replace.
  if (config.d_model % config.n_heads == 0) {
    config.head_dim = config.d_model / config.n_heads;
  }
  FORETOKEN_RETURN_IF_ERROR(keys.Optional(
      "attention.key_length", 2, ModelConfig::kMaxHeadDim, config.head_dim));
  // Rotary pairs.
  if (config.head_dim % 2 != 0 || config.head_dim < 2) {
    return keys.Invalid("attention.key_length", "an even number");
  }
  // Key, value and rotated dimensions: one number in the models supported.
  for (const char* key : {"attention.value_length", "rope.dimension_count"}) {
    int32_t length = config.head_dim;
    FORETOKEN_RETURN_IF_ERROR(
        keys.Optional(key, 1, ModelConfig::kMaxHeadDim, length));
    if (length != config.head_dim) {
      return keys.Unsupported(
          key, absl::StrCat(config.head_dim, " as the length of a key"));
    }
  }
  float eps = -1;
  // No default: models differ, and a wrong one changes every output a little.
  FORETOKEN_RETURN_IF_ERROR(
      keys.Optional("attention.layer_norm_rms_epsilon", 1e-12, 1.0, eps));
  if (eps < 0) {
    return keys.Invalid("attention.layer_norm_rms_epsilon", "1e-12..1");
  }
  config.rms_norm_eps = eps;
  return absl::OkStatus();
}

absl::Status ReadRopeKeys(Keys& keys, ModelConfig& config) {
  FORETOKEN_RETURN_IF_ERROR(
      keys.Optional("rope.freq_base", 1.0, 1e12, config.rope_theta));
  // As llama.cpp reads them: linear unless another type is named.
  RopeScaling& scaling = config.rope_scaling;
  FORETOKEN_ASSIGN_OR_RETURN(const std::string type,
                             keys.Text("rope.scaling.type", "linear"));
  if (type != "linear" && type != "none") {
    return keys.Unsupported("rope.scaling.type", "none or linear");
  }
  float factor = 0;
  // Old and new name of the same number; the later one wins.
  for (const char* key : {"rope.scale_linear", "rope.scaling.factor"}) {
    FORETOKEN_RETURN_IF_ERROR(keys.Optional(key, 0.0, 1e6, factor));
  }
  if (type == "linear" && factor != 0 && factor != 1) {
    // A factor below 1 would shorten the context.
    if (factor < 1) return keys.Invalid("rope.scaling.factor", "1..1e6");
    scaling.type = RopeScaling::Type::kLinear;
    scaling.factor = factor;
  }
  keys.Ignore("rope.scaling.original_context_length");
  keys.Ignore("rope.scaling.finetuned");
  return absl::OkStatus();
}

// Numbers of llama.cpp's llama_pooling_type: none, mean, cls, last, rank.
absl::Status ReadPooling(Keys& keys, ModelConfig& config) {
  int32_t type = 1;  // of a file that does not say
  FORETOKEN_RETURN_IF_ERROR(keys.Optional("pooling_type", 0, 4, type));
  if (type == 1) {
    config.pooling = Pooling::kMean;
  } else {
    config.pooling = type == 3 ? Pooling::kLast : Pooling::kNone;
  }
  return absl::OkStatus();
}

// Features that must be absent or switched off.
absl::Status RefuseFeatures(Keys& keys, const ModelConfig& config) {
  for (const char* key : {"expert_count", "expert_used_count"}) {
    int32_t experts = 0;
    FORETOKEN_RETURN_IF_ERROR(keys.Optional(key, 0, INT32_MAX, experts));
    if (experts != 0) return keys.Unsupported(key, "0");
  }
  int32_t window = 0;
  FORETOKEN_RETURN_IF_ERROR(
      keys.Optional("attention.sliding_window", 0, INT32_MAX, window));
  // A window that is never left is no window.
  if (window != 0 && window < config.max_positions) {
    return keys.Unsupported(
        "attention.sliding_window",
        absl::StrCat("0 or at least the context of ", config.max_positions));
  }
  constexpr char kOneLayout[] = "Meta AI original pth";
  FORETOKEN_ASSIGN_OR_RETURN(const std::string layout,
                             keys.Text("tensor_data_layout", kOneLayout));
  // The layout decides the order of the rows of q and k (IsStoredInPairs).
  if (layout != kOneLayout) {
    return keys.Unsupported("tensor_data_layout", kOneLayout);
  }
  keys.Ignore("vocab_size");  // the embedding has its rows
  return keys.RefuseUnknown();
}

// Properties that show in whether the file has a tensor.
absl::Status ReadFromTensors(const GgufFiles& files, ModelConfig& config) {
  const auto has = [&files](const char* name) {
    return files.tensors.contains(name);
  };
  const auto embedding = files.tensors.find(kTokenEmbedding);
  if (embedding == files.tensors.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        files.metadata.file(), ": tensor ", kTokenEmbedding, " is missing"));
  }
  // The vocabulary is the embedding's number of rows, whatever the metadata
  // says.
  const std::vector<int64_t>& shape = embedding->second.tensor.shape;
  if (shape.size() != 2 || shape[0] > ModelConfig::kMaxVocabulary) {
    return TensorError(
        embedding->second,
        absl::StrCat("has shape ", ShapeText(shape),
                     ", want [vocabulary up to ", ModelConfig::kMaxVocabulary,
                     ", ", config.d_model, "]"));
  }
  config.vocab_size = static_cast<int32_t>(shape[0]);
  config.tied_embeddings = !has("output.weight");
  // Qwen2 always has these biases: a file without them is incomplete, which
  // BindTensor reports.
  config.qkv_bias =
      config.family == ModelFamily::kQwen2 || has("blk.0.attn_q.bias");
  config.output_bias = has("blk.0.attn_output.bias");
  config.mlp_bias = has("blk.0.ffn_gate.bias");
  config.qk_norm = config.family == ModelFamily::kQwen3;
  return absl::OkStatus();
}

absl::Status ReadDivisors(const GgufFiles& files, ModelConfig& config) {
  const auto found = files.tensors.find(kGgufRopeFreqs);
  // Llama 3.1's divisors, which converters store as a tensor instead of the
  // scaling's parameters.
  if (config.family != ModelFamily::kLlama || found == files.tensors.end()) {
    return absl::OkStatus();
  }
  const GgufTensor& tensor = found->second.tensor;
  const std::vector<int64_t> want = {config.head_dim / 2};
  if (tensor.shape != want ||
      WeightTypeFromGguf(tensor.type) != WeightType::kFloat32) {
    return TensorError(
        found->second,
        absl::StrCat("is ", GgufTensorTypeName(tensor.type), " ",
                     ShapeText(tensor.shape), ", want F32 ", ShapeText(want)));
  }
  std::vector<float>& divisors = config.rope_scaling.divisors;
  divisors.resize(want[0]);
  ConvertToFloat32(WeightType::kFloat32, tensor.data.data(),
                   absl::MakeSpan(divisors));
  for (const float divisor : divisors) {
    // Negated, for NaN; a divisor of 0 would give an infinite frequency.
    if (!(divisor > 0) || !std::isfinite(divisor)) {
      return TensorError(found->second,
                         absl::StrCat("holds ", divisor, ", want more than 0"));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadTokens(const GgufMetadata& metadata, ModelConfig& config) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::optional<int64_t> bos,
                             GgufBosToken(metadata, config.vocab_size));
  FORETOKEN_ASSIGN_OR_RETURN(const std::optional<int64_t> eos,
                             GgufEosToken(metadata, config.vocab_size));
  config.bos_token = static_cast<TokenId>(bos.value_or(-1));
  if (eos) config.eos_tokens.push_back(static_cast<TokenId>(*eos));
  // Turns of a chat end with these: a model that is served must stop there too.
  for (const char* key :
       {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    FORETOKEN_ASSIGN_OR_RETURN(const std::optional<int64_t> id,
                               metadata.Integer(key, 0, config.vocab_size - 1));
    if (id) config.eos_tokens.push_back(static_cast<TokenId>(*id));
  }
  // eos_tokens promises ascending order without duplicates.
  std::sort(config.eos_tokens.begin(), config.eos_tokens.end());
  config.eos_tokens.erase(
      std::unique(config.eos_tokens.begin(), config.eos_tokens.end()),
      config.eos_tokens.end());
  return absl::OkStatus();
}

absl::Status BindTensor(const GgufFiles& files, const ModelConfig& config,
                        const TensorSlot& slot) {
  const std::string name = GgufTensorName(slot.name);
  const auto found = files.tensors.find(name);
  if (found == files.tensors.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(files.metadata.file(), ": tensor ", name,
                     " is missing, want ", ShapeText(slot.shape())));
  }
  const GgufTensor& tensor = found->second.tensor;
  // As the config says; ggml's order of dimensions was reversed when the table
  // was read.
  if (tensor.shape != slot.shape()) {
    return TensorError(found->second,
                       absl::StrCat("has shape ", ShapeText(tensor.shape),
                                    ", want ", ShapeText(slot.shape())));
  }
  const std::optional<WeightType> type = WeightTypeFromGguf(tensor.type);
  if (!type) {
    return absl::UnimplementedError(absl::StrCat(
        found->second.file, ": tensor ", name, " has type ",
        GgufTensorTypeName(tensor.type),
        ", want F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or "
        "Q6_K"));
  }
  // Converters permute q and k of Llama for ggml's rotary kernel; CopyTo undoes
  // it.
  *slot.tensor = {tensor.data.data(), *type, slot.rows, slot.cols,
                  IsStoredInPairs(config.family, name) ? config.head_dim : 0};
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> ReadGgufConfig(const GgufFiles& files) {
  const GgufMetadata& metadata = files.metadata;
  FORETOKEN_ASSIGN_OR_RETURN(const absl::string_view name,
                             metadata.RequiredString("general.architecture"));
  const Architecture* architecture = std::find_if(
      std::begin(kArchitectures), std::end(kArchitectures),
      [&](const Architecture& known) { return name == known.name; });
  if (architecture == std::end(kArchitectures)) {
    return metadata.Unsupported("general.architecture",
                                "llama, qwen2 or qwen3");
  }
  ModelConfig config;
  config.family = architecture->family;
  Keys keys(metadata, architecture->name);
  FORETOKEN_RETURN_IF_ERROR(ReadShape(keys, config));
  FORETOKEN_RETURN_IF_ERROR(ReadRopeKeys(keys, config));
  FORETOKEN_RETURN_IF_ERROR(ReadPooling(keys, config));
  FORETOKEN_RETURN_IF_ERROR(RefuseFeatures(keys, config));
  // After the keys, which say what shapes tensors must have.
  FORETOKEN_RETURN_IF_ERROR(ReadFromTensors(files, config));
  FORETOKEN_RETURN_IF_ERROR(ReadDivisors(files, config));
  FORETOKEN_RETURN_IF_ERROR(ReadTokens(metadata, config));
  FORETOKEN_RETURN_IF_ERROR(Annotate(config.Validate(), metadata.file()));
  return config;
}

absl::Status BindGgufTensors(const GgufFiles& files, const ModelConfig& config,
                             absl::Span<const TensorSlot> slots) {
  std::vector<std::string> wanted;
  for (const TensorSlot& slot : slots) {
    FORETOKEN_RETURN_IF_ERROR(BindTensor(files, config, slot));
    wanted.push_back(GgufTensorName(slot.name));
  }
  // Read by ReadDivisors, not bound to a slot.
  if (config.family == ModelFamily::kLlama) wanted.push_back(kGgufRopeFreqs);
  std::sort(wanted.begin(), wanted.end());
  for (const auto& [name, stored] : files.tensors) {
    if (!std::binary_search(wanted.begin(), wanted.end(), name)) {
      return TensorError(stored, absl::StrCat("is unexpected: this ",
                                              ModelFamilyName(config.family),
                                              " model has none of that name"));
    }
  }
  return absl::OkStatus();
}

std::string GgufTensorName(const std::string& name) {
  return absl::StrReplaceAll(name, {{"model.layers.", "blk."},
                                    {"model.embed_tokens.", "token_embd."},
                                    {"model.norm.", "output_norm."},
                                    {"lm_head.", "output."},
                                    {"input_layernorm.", "attn_norm."},
                                    {"self_attn.q_proj.", "attn_q."},
                                    {"self_attn.k_proj.", "attn_k."},
                                    {"self_attn.v_proj.", "attn_v."},
                                    {"self_attn.o_proj.", "attn_output."},
                                    {"self_attn.q_norm.", "attn_q_norm."},
                                    {"self_attn.k_norm.", "attn_k_norm."},
                                    {"post_attention_layernorm.", "ffn_norm."},
                                    {"mlp.gate_proj.", "ffn_gate."},
                                    {"mlp.up_proj.", "ffn_up."},
                                    {"mlp.down_proj.", "ffn_down."}});
}

bool IsStoredInPairs(ModelFamily family, const std::string& gguf_name) {
  return (family == ModelFamily::kLlama || family == ModelFamily::kMistral) &&
         (absl::StrContains(gguf_name, ".attn_q.") ||
          absl::StrContains(gguf_name, ".attn_k."));
}

}  // namespace foretoken
