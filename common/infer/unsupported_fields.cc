#include "common/infer/unsupported_fields.h"

#include "absl/strings/str_cat.h"

namespace foretoken {
namespace {

// Fields that none of the four families has, or has only at this value; any
// other value means a model that computes something else. Absent and null pass.
enum class Harmless { kAbsent, kFalse, kZero, kOne, kEmpty };
struct FixedField {
  const char* field;
  Harmless harmless;
};
constexpr FixedField kFixedFields[] = {
    // Compressed weights.
    {"quantization_config", Harmless::kAbsent},
    {"compression_config", Harmless::kAbsent},
    // Mixtures of experts.
    {"num_experts", Harmless::kZero},
    {"num_local_experts", Harmless::kZero},
    {"n_routed_experts", Harmless::kZero},
    {"n_shared_experts", Harmless::kZero},
    {"num_experts_per_tok", Harmless::kZero},
    {"moe_intermediate_size", Harmless::kZero},
    {"shared_expert_intermediate_size", Harmless::kZero},
    // Another attention.
    {"kv_lora_rank", Harmless::kAbsent},
    {"q_lora_rank", Harmless::kAbsent},
    {"v_head_dim", Harmless::kAbsent},
    {"attention_multiplier", Harmless::kOne},
    {"attention_scale", Harmless::kOne},
    {"attn_scale", Harmless::kOne},
    {"query_pre_attn_scalar", Harmless::kAbsent},
    {"attn_logit_softcapping", Harmless::kZero},
    {"attn_temperature_tuning", Harmless::kFalse},
    {"attention_chunk_size", Harmless::kZero},
    {"attention_sinks", Harmless::kFalse},
    {"scale_attn_by_inverse_layer_idx", Harmless::kFalse},
    {"clip_qkv", Harmless::kAbsent},
    {"alibi", Harmless::kFalse},
    {"use_qk_norm", Harmless::kFalse},
    {"qk_layernorm", Harmless::kFalse},
    {"num_kv_shared_layers", Harmless::kZero},
    {"add_cross_attention", Harmless::kFalse},
    {"is_encoder_decoder", Harmless::kFalse},
    // Another rotary embedding.
    {"partial_rotary_factor", Harmless::kOne},
    {"rotary_pct", Harmless::kOne},
    {"rope_interleaved", Harmless::kFalse},
    {"rope_interleave", Harmless::kFalse},
    {"no_rope_layers", Harmless::kEmpty},
    {"no_rope_layer_interval", Harmless::kZero},
    // Another residual stream or head.
    {"final_logit_softcapping", Harmless::kZero},
    {"logit_scale", Harmless::kOne},
    {"logits_scaling", Harmless::kOne},
    {"lm_head_multiplier", Harmless::kOne},
    {"embedding_multiplier", Harmless::kOne},
    {"residual_multiplier", Harmless::kOne},
    {"scale_emb", Harmless::kOne},
    {"scale_depth", Harmless::kOne},
    {"dim_model_base", Harmless::kAbsent},
    {"use_parallel_residual", Harmless::kFalse},
    {"pretraining_tp", Harmless::kOne},
};

bool IsHarmless(const Json& value, Harmless harmless) {
  switch (harmless) {
    case Harmless::kAbsent:
      return false;
    case Harmless::kFalse:
      return value.is_boolean() && !value.get<bool>();
    case Harmless::kZero:
      return value.is_number() && value.get<double>() == 0.0;
    case Harmless::kOne:
      return value.is_number() && value.get<double>() == 1.0;
    case Harmless::kEmpty:
      return value.is_array() && value.empty();
  }
  return false;
}

const char* HarmlessText(Harmless harmless) {
  switch (harmless) {
    case Harmless::kAbsent:
      return "none: the engine does not support it";
    case Harmless::kFalse:
      return "false";
    case Harmless::kZero:
      return "0";
    case Harmless::kOne:
      return "1";
    case Harmless::kEmpty:
      return "an empty list";
  }
  return "";
}

}  // namespace

absl::Status CheckUnsupportedFields(const JsonFields& fields) {
  for (const FixedField& fixed : kFixedFields) {
    const Json* value = fields.Find(fixed.field);
    if (value != nullptr && !IsHarmless(*value, fixed.harmless)) {
      return fields.Unsupported(fixed.field, HarmlessText(fixed.harmless));
    }
  }
  // Code that ships with a checkpoint could compute anything.
  const Json* auto_map = fields.Find("auto_map");
  if (auto_map != nullptr && auto_map->is_object()) {
    for (const char* name : {"AutoModelForCausalLM", "AutoModel"}) {
      if (auto_map->contains(name)) {
        return fields.Unsupported(
            "auto_map", absl::StrCat("no ", name, " of the checkpoint's own"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace foretoken
