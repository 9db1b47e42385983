#include "common/infer/model_config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/infer/json_fields.h"
#include "common/infer/model_config_rope.h"
#include "common/infer/unsupported_fields.h"

namespace foretoken {
namespace {

struct FamilyTraits {
  ModelFamily family;
  const char* model_type;
  const char* architecture;
  int32_t default_head_dim;  // 0: d_model / n_heads
  bool kv_heads_default;     // absent num_key_value_heads means n_heads
  TokenId default_bos;       // value of an absent (not null) field
  TokenId default_eos;
};

// The defaults of Hugging Face's configuration classes: files leave out fields
// that have them.
constexpr FamilyTraits kFamilies[] = {
    {ModelFamily::kLlama, "llama", "LlamaForCausalLM", 0, true, 1, 2},
    {ModelFamily::kMistral, "mistral", "MistralForCausalLM", 0, false, 1, 2},
    {ModelFamily::kQwen2, "qwen2", "Qwen2ForCausalLM", 0, false, -1, -1},
    {ModelFamily::kQwen3, "qwen3", "Qwen3ForCausalLM", 128, false, -1, -1},
};

absl::StatusOr<const FamilyTraits*> ReadFamily(const JsonFields& fields) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::optional<std::string> model_type,
                             fields.String("model_type"));
  const std::string want = "llama, mistral, qwen2 or qwen3";
  if (!model_type) return fields.Invalid("model_type", want);
  const FamilyTraits* traits = nullptr;
  for (const FamilyTraits& candidate : kFamilies) {
    if (*model_type == candidate.model_type) traits = &candidate;
  }
  if (traits == nullptr) return fields.Unsupported("model_type", want);

  // A known model_type with another architecture (a classifier, say) has other
  // tensors or another head.
  const Json* architectures = fields.Find("architectures");
  if (architectures != nullptr) {
    const bool known = architectures->is_array() &&
                       architectures->size() == 1 &&
                       (*architectures)[0] == traits->architecture;
    if (!known) {
      return fields.Unsupported(
          "architectures", absl::StrCat("[\"", traits->architecture, "\"]"));
    }
  }
  // The kernels implement SwiGLU only.
  for (const char* field : {"hidden_act", "hidden_activation"}) {
    FORETOKEN_ASSIGN_OR_RETURN(const std::optional<std::string> activation,
                               fields.String(field));
    if (activation && *activation != "silu") {
      return fields.Unsupported(field, "\"silu\"");
    }
  }
  return traits;
}

absl::Status ReadShape(const JsonFields& fields, const FamilyTraits& traits,
                       ModelConfig& config) {
  const auto read = [&fields](const char* field, int64_t max,
                              int32_t& out) -> absl::Status {
    FORETOKEN_ASSIGN_OR_RETURN(const int64_t value,
                               fields.RequiredInteger(field, 1, max));
    out = static_cast<int32_t>(value);
    return absl::OkStatus();
  };
  FORETOKEN_RETURN_IF_ERROR(
      read("hidden_size", ModelConfig::kMaxModelWidth, config.d_model));
  FORETOKEN_RETURN_IF_ERROR(
      read("num_hidden_layers", ModelConfig::kMaxLayers, config.n_layers));
  FORETOKEN_RETURN_IF_ERROR(
      read("num_attention_heads", ModelConfig::kMaxHeads, config.n_heads));
  FORETOKEN_RETURN_IF_ERROR(
      read("intermediate_size", ModelConfig::kMaxFeedForward, config.d_ff));
  FORETOKEN_RETURN_IF_ERROR(
      read("vocab_size", ModelConfig::kMaxVocabulary, config.vocab_size));
  FORETOKEN_RETURN_IF_ERROR(read("max_position_embeddings",
                                 ModelConfig::kMaxPositions,
                                 config.max_positions));

  // Llama files from before grouped-query attention lack the field.
  if (fields.Find("num_key_value_heads") == nullptr &&
      traits.kv_heads_default) {
    config.n_kv_heads = config.n_heads;
  } else {
    FORETOKEN_RETURN_IF_ERROR(
        read("num_key_value_heads", ModelConfig::kMaxHeads, config.n_kv_heads));
  }
  if (config.n_heads % config.n_kv_heads != 0) {
    return fields.Invalid(
        "num_key_value_heads",
        absl::StrCat("a divisor of num_attention_heads ", config.n_heads));
  }

  // Qwen3 fixes head_dim at 128 by default, independently of hidden_size.
  if (fields.Find("head_dim") != nullptr) {
    FORETOKEN_RETURN_IF_ERROR(
        read("head_dim", ModelConfig::kMaxHeadDim, config.head_dim));
  } else if (traits.default_head_dim != 0) {
    config.head_dim = traits.default_head_dim;
  } else if (config.d_model % config.n_heads == 0) {
    config.head_dim = config.d_model / config.n_heads;
  } else {
    return fields.Invalid(
        "hidden_size",
        absl::StrCat("a multiple of num_attention_heads ", config.n_heads,
                     ", or head_dim given apart"));
  }
  // Rotary embedding pairs element i with i + head_dim / 2.
  if (config.head_dim % 2 != 0 || config.head_dim > ModelConfig::kMaxHeadDim) {
    return fields.Invalid(
        fields.Find("head_dim") != nullptr ? "head_dim" : "hidden_size",
        absl::StrCat("an even head_dim of at most ", ModelConfig::kMaxHeadDim,
                     ", not ", config.head_dim));
  }
  FORETOKEN_ASSIGN_OR_RETURN(const std::optional<double> eps,
                             fields.Number("rms_norm_eps", 1e-12, 1.0));
  // Hugging Face's default in all four families.
  config.rms_norm_eps = static_cast<float>(eps.value_or(1e-6));
  return absl::OkStatus();
}

absl::Status ReadSwitches(const JsonFields& fields, ModelConfig& config) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::optional<bool> tied,
                             fields.Bool("tie_word_embeddings"));
  FORETOKEN_ASSIGN_OR_RETURN(const std::optional<bool> attention_bias,
                             fields.Bool("attention_bias"));
  FORETOKEN_ASSIGN_OR_RETURN(const std::optional<bool> mlp_bias,
                             fields.Bool("mlp_bias"));
  config.tied_embeddings = tied.value_or(false);
  config.mlp_bias = mlp_bias.value_or(false);
  // QK norm and Qwen2's biases come with the family; no field states them.
  config.qk_norm = config.family == ModelFamily::kQwen3;
  if (config.mlp_bias && config.family != ModelFamily::kLlama) {
    return fields.Unsupported("mlp_bias", "false in this family");
  }
  switch (config.family) {
    case ModelFamily::kLlama:
    case ModelFamily::kQwen3:
      config.qkv_bias = config.output_bias = attention_bias.value_or(false);
      break;
    case ModelFamily::kMistral:
      if (attention_bias.value_or(false)) {
        return fields.Unsupported("attention_bias", "false in this family");
      }
      break;
    case ModelFamily::kQwen2:  // always biased, whatever the field says
      config.qkv_bias = true;
      break;
  }
  return absl::OkStatus();
}

// Accepts windows at least as long as the context: they never hide a key.
absl::Status CheckSlidingWindow(const JsonFields& fields,
                                const ModelConfig& config) {
  // Newer files list the kind of attention per layer. One that lists full
  // attention everywhere overrides the window fields of the Qwen families.
  const Json* layer_types = fields.Find("layer_types");
  if (layer_types != nullptr) {
    bool full = layer_types->is_array() &&
                layer_types->size() == static_cast<size_t>(config.n_layers);
    for (size_t i = 0; full && i < layer_types->size(); ++i) {
      full = (*layer_types)[i] == "full_attention";
    }
    if (!full) {
      return fields.Unsupported(
          "layer_types", absl::StrCat("\"full_attention\" for each of the ",
                                      config.n_layers, " layers"));
    }
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::optional<int64_t> window,
      fields.Integer("sliding_window", 0, ModelConfig::kMaxPositions));
  FORETOKEN_ASSIGN_OR_RETURN(const std::optional<bool> use,
                             fields.Bool("use_sliding_window"));
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::optional<int64_t> first_windowed,
      fields.Integer("max_window_layers", 0, ModelConfig::kMaxPositions));
  const bool qwen = config.family == ModelFamily::kQwen2 ||
                    config.family == ModelFamily::kQwen3;
  if (qwen) {
    // Both families have the window off by default; if it is on, the layers
    // below max_window_layers keep full attention.
    if (!use.value_or(false) || layer_types != nullptr) return absl::OkStatus();
    if (first_windowed && *first_windowed >= config.n_layers) {
      return absl::OkStatus();
    }
  }
  // Llama has no window; Hugging Face ignores the fields in this family.
  if (config.family == ModelFamily::kLlama) {
    if (use.value_or(false)) {
      return fields.Unsupported("use_sliding_window", "false in this family");
    }
    return absl::OkStatus();
  }
  if (config.family == ModelFamily::kMistral && use.has_value() && !*use) {
    return absl::OkStatus();
  }
  if (window && *window >= config.max_positions) return absl::OkStatus();
  // An explicit null switches Mistral's window off.
  if (!window && !qwen && fields.Has("sliding_window")) return absl::OkStatus();
  return fields.Unsupported(
      "sliding_window",
      absl::StrCat(qwen ? "use_sliding_window false or " : "null or ",
                   "a window of at least max_position_embeddings ",
                   config.max_positions));
}

// Reads `field` as one id or a list of ids; nullopt if absent, empty if null.
absl::StatusOr<std::optional<std::vector<TokenId>>> ReadTokens(
    const JsonFields& fields, const char* field, int32_t vocab_size) {
  const Json* value = fields.Find(field);
  if (value == nullptr) {
    if (!fields.Has(field)) return std::optional<std::vector<TokenId>>();
    return std::optional<std::vector<TokenId>>(std::in_place);
  }
  const std::string want =
      absl::StrCat("token ids in 0..", vocab_size - 1, ", at most ",
                   ModelConfig::kMaxEndTokens);
  const Json list = value->is_array() ? *value : Json::array({*value});
  if (list.size() > static_cast<size_t>(ModelConfig::kMaxEndTokens)) {
    return fields.Invalid(field, want);
  }
  std::vector<TokenId> tokens;
  for (const Json& item : list) {
    if (!item.is_number_integer()) return fields.Invalid(field, want);
    const int64_t id = item.get<int64_t>();
    if (id < 0 || id >= vocab_size) return fields.Invalid(field, want);
    tokens.push_back(static_cast<TokenId>(id));
  }
  // eos_tokens promises ascending order without duplicates.
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return std::optional<std::vector<TokenId>>(std::move(tokens));
}

// Sets what the object gives and leaves the rest of `config` unchanged.
absl::Status ReadSpecialTokens(const JsonFields& fields, ModelConfig& config) {
  FORETOKEN_ASSIGN_OR_RETURN(
      std::optional<std::vector<TokenId>> eos,
      ReadTokens(fields, "eos_token_id", config.vocab_size));
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::optional<std::vector<TokenId>> bos,
      ReadTokens(fields, "bos_token_id", config.vocab_size));
  if (eos) config.eos_tokens = *std::move(eos);
  if (bos) {
    if (bos->size() > 1) return fields.Invalid("bos_token_id", "one token id");
    config.bos_token = bos->empty() ? -1 : bos->front();
  }
  return absl::OkStatus();
}

}  // namespace

const char* ModelFamilyName(ModelFamily family) {
  for (const FamilyTraits& traits : kFamilies) {
    if (traits.family == family) return traits.model_type;
  }
  return "unknown";
}

absl::StatusOr<ModelConfig> ModelConfig::FromJson(const Json& json,
                                                  const std::string& file) {
  if (!json.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": not a JSON object"));
  }
  const JsonFields fields(json, file);
  FORETOKEN_ASSIGN_OR_RETURN(const FamilyTraits* traits, ReadFamily(fields));
  FORETOKEN_RETURN_IF_ERROR(CheckUnsupportedFields(fields));

  ModelConfig config;
  config.family = traits->family;
  FORETOKEN_RETURN_IF_ERROR(ReadShape(fields, *traits, config));
  FORETOKEN_RETURN_IF_ERROR(ReadSwitches(fields, config));
  FORETOKEN_RETURN_IF_ERROR(CheckSlidingWindow(fields, config));
  FORETOKEN_RETURN_IF_ERROR(ReadRope(fields, file, config));
  // The defaults may lie outside a tiny vocabulary; then there is no such
  // token.
  if (traits->default_bos < config.vocab_size) {
    config.bos_token = traits->default_bos;
  }
  if (traits->default_eos >= 0 && traits->default_eos < config.vocab_size) {
    config.eos_tokens = {traits->default_eos};
  }
  FORETOKEN_RETURN_IF_ERROR(ReadSpecialTokens(fields, config));
  return config;
}

absl::Status ModelConfig::MergeGenerationConfig(const Json& json,
                                                const std::string& file) {
  if (!json.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": not a JSON object"));
  }
  // A null in this file means "not set here": config.json's value stays.
  Json given = Json::object();
  for (const char* field : {"eos_token_id", "bos_token_id"}) {
    const auto found = json.find(field);
    if (found != json.end() && !found->is_null()) given[field] = *found;
  }
  return ReadSpecialTokens(JsonFields(given, file), *this);
}

absl::Status ModelConfig::Validate() const {
  struct Bound {
    const char* field;
    int64_t value;
    int64_t max;
  };
  const Bound bounds[] = {
      {"d_model", d_model, kMaxModelWidth},
      {"n_layers", n_layers, kMaxLayers},
      {"n_heads", n_heads, kMaxHeads},
      {"n_kv_heads", n_kv_heads, kMaxHeads},
      {"head_dim", head_dim, kMaxHeadDim},
      {"d_ff", d_ff, kMaxFeedForward},
      {"vocab_size", vocab_size, kMaxVocabulary},
      {"max_positions", max_positions, kMaxPositions},
  };
  for (const Bound& bound : bounds) {
    if (bound.value < 1 || bound.value > bound.max) {
      return absl::InvalidArgumentError(
          absl::StrCat("model config: ", bound.field, " is ", bound.value,
                       ", want 1..", bound.max));
    }
  }
  if (n_heads % n_kv_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model config: n_kv_heads is ", n_kv_heads,
                     ", want a divisor of n_heads ", n_heads));
  }
  if (head_dim % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model config: head_dim is ", head_dim, ", want an even number"));
  }
  if (!(rms_norm_eps > 0.0f && rms_norm_eps <= 1.0f)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model config: rms_norm_eps is ", rms_norm_eps, ", want 0..1"));
  }
  if (!(rope_theta >= 1.0f && rope_theta <= 1e12f)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model config: rope_theta is ", rope_theta, ", want 1..1e12"));
  }
  return absl::OkStatus();
}

}  // namespace foretoken
