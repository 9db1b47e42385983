#include "common/infer/unsupported_fields.h"

#include "absl/strings/str_cat.h"
#include "common/base/json.h"

namespace foretoken {
namespace {

// Fields that none of the four families has, or has only at this value (JSON;
// nullptr: at none); any other value means a model that computes something
// else. Absent and null pass.
struct FixedField {
  const char* field;
  const char* harmless;
};
constexpr FixedField kFixedFields[] = {
    // Compressed weights.
    {"quantization_config", nullptr},
    {"compression_config", nullptr},
    // Mixtures of experts.
    {"num_experts", "0"},
    {"num_local_experts", "0"},
    {"n_routed_experts", "0"},
    {"n_shared_experts", "0"},
    {"num_experts_per_tok", "0"},
    {"moe_intermediate_size", "0"},
    {"shared_expert_intermediate_size", "0"},
    // Another attention.
    {"kv_lora_rank", nullptr},
    {"q_lora_rank", nullptr},
    {"v_head_dim", nullptr},
    {"attention_multiplier", "1"},
    {"attention_scale", "1"},
    {"attn_scale", "1"},
    {"query_pre_attn_scalar", nullptr},
    {"attn_logit_softcapping", "0"},
    {"attn_temperature_tuning", "false"},
    {"attention_chunk_size", "0"},
    {"attention_sinks", "false"},
    {"scale_attn_by_inverse_layer_idx", "false"},
    {"clip_qkv", nullptr},
    {"alibi", "false"},
    {"use_qk_norm", "false"},
    {"qk_layernorm", "false"},
    {"num_kv_shared_layers", "0"},
    {"add_cross_attention", "false"},
    {"is_encoder_decoder", "false"},
    // Another rotary embedding.
    {"partial_rotary_factor", "1"},
    {"rotary_pct", "1"},
    {"rope_interleaved", "false"},
    {"rope_interleave", "false"},
    {"no_rope_layers", "[]"},
    {"no_rope_layer_interval", "0"},
    // Another residual stream or head.
    {"final_logit_softcapping", "0"},
    {"logit_scale", "1"},
    {"logits_scaling", "1"},
    {"lm_head_multiplier", "1"},
    {"embedding_multiplier", "1"},
    {"residual_multiplier", "1"},
    {"scale_emb", "1"},
    {"scale_depth", "1"},
    {"dim_model_base", nullptr},
    {"use_parallel_residual", "false"},
    {"pretraining_tp", "1"},
};

}  // namespace

absl::Status CheckUnsupportedFields(const JsonFields& fields) {
  for (const FixedField& fixed : kFixedFields) {
    const Json* value = fields.Find(fixed.field);
    if (value == nullptr) continue;
    if (fixed.harmless == nullptr) {
      return fields.Unsupported(fixed.field,
                                "none: the engine does not support it");
    }
    // Numbers are compared by value: 0.0 equals 0.
    if (*value != Json::parse(fixed.harmless)) {
      return fields.Unsupported(fixed.field, fixed.harmless);
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
