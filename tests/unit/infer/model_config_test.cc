#include "common/base/json.h"
#include "common/infer/model_config.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/infer/tiny_checkpoint.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TinyConfigJson;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kUnsupported = absl::StatusCode::kUnimplemented;

absl::StatusOr<ModelConfig> Parse(const Json& changes) {
  Json json = TinyConfigJson();
  json.merge_patch(changes);
  return ModelConfig::FromJson(json, "config.json");
}

// The fields of `text` put in as they are: a merge would drop the nulls.
absl::StatusOr<ModelConfig> ParseWithNulls(const Json& family,
                                           const std::string& text) {
  Json json = TinyConfigJson();
  json.merge_patch(family);
  json.update(*ParseJson(text));
  return ModelConfig::FromJson(json, "config.json");
}

Json Family(const std::string& model_type, const std::string& architecture) {
  return {{"model_type", model_type}, {"architectures", {architecture}}};
}

TEST(ModelConfigTest, ReadsALlama) {
  const auto config = Parse({{"rope_theta", 5e5}, {"num_attention_heads", 4}});
  FORETOKEN_ASSERT_OK(config);
  EXPECT_EQ(config->family, ModelFamily::kLlama);
  EXPECT_EQ(config->d_model, 8);
  EXPECT_EQ(config->d_ff, 12);
  EXPECT_EQ(config->n_layers, 2);
  EXPECT_EQ(config->n_heads, 4);
  EXPECT_EQ(config->n_kv_heads, 1);
  EXPECT_EQ(config->head_dim, 2);
  EXPECT_EQ(config->vocab_size, 10);
  EXPECT_EQ(config->max_positions, 32);
  EXPECT_FLOAT_EQ(config->rms_norm_eps, 1e-5f);
  EXPECT_FLOAT_EQ(config->rope_theta, 5e5f);
  EXPECT_EQ(config->rope_scaling.type, RopeScaling::Type::kNone);
  EXPECT_FALSE(config->tied_embeddings);
  EXPECT_FALSE(config->qkv_bias || config->output_bias || config->mlp_bias);
  EXPECT_FALSE(config->qk_norm);
  EXPECT_EQ(config->bos_token, 1);
  EXPECT_THAT(config->eos_tokens, ElementsAre(2));
  FORETOKEN_EXPECT_OK(config->Validate());
}

TEST(ModelConfigTest, EachFamilyHasItsOwnBiasesAndNorms) {
  const auto llama = Parse({{"attention_bias", true}, {"mlp_bias", true}});
  FORETOKEN_ASSERT_OK(llama);
  EXPECT_TRUE(llama->qkv_bias && llama->output_bias && llama->mlp_bias);

  Json changes = Family("qwen2", "Qwen2ForCausalLM");
  const auto qwen2 = Parse(changes);
  FORETOKEN_ASSERT_OK(qwen2);
  EXPECT_TRUE(qwen2->qkv_bias);
  EXPECT_FALSE(qwen2->output_bias || qwen2->qk_norm);

  changes = Family("qwen3", "Qwen3ForCausalLM");
  changes["head_dim"] = 6;
  const auto qwen3 = Parse(changes);
  FORETOKEN_ASSERT_OK(qwen3);
  EXPECT_TRUE(qwen3->qk_norm);
  EXPECT_FALSE(qwen3->qkv_bias);
  EXPECT_EQ(qwen3->head_dim, 6);
  changes.erase("head_dim");
  EXPECT_EQ(Parse(changes)->head_dim, 128);  // this family's default

  changes = Family("mistral", "MistralForCausalLM");
  changes["sliding_window"] = 32;
  const auto mistral = Parse(changes);
  FORETOKEN_ASSERT_OK(mistral);
  EXPECT_FALSE(mistral->qkv_bias || mistral->qk_norm);
}

TEST(ModelConfigTest, BothRotaryLayoutsGiveTheSame) {
  const Json scaling = {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4},
                        {"original_max_position_embeddings", 16}};
  Json parameters = scaling;
  parameters["rope_theta"] = 5e5;
  for (const Json& changes :
       {Json{{"rope_theta", 5e5}, {"rope_scaling", scaling}},
        Json{{"rope_parameters", parameters}},
        Json{{"rope_theta", 5e5}, {"rope_parameters", parameters}}}) {
    const auto config = Parse(changes);
    FORETOKEN_ASSERT_OK(config);
    EXPECT_FLOAT_EQ(config->rope_theta, 5e5f);
    EXPECT_EQ(config->rope_scaling.type, RopeScaling::Type::kLlama3);
    EXPECT_EQ(config->rope_scaling.factor, 8.0f);
    EXPECT_EQ(config->rope_scaling.low_freq_factor, 1.0f);
    EXPECT_EQ(config->rope_scaling.high_freq_factor, 4.0f);
    EXPECT_EQ(config->rope_scaling.original_max_positions, 16);
  }
  const auto linear =
      Parse({{"rope_scaling", {{"type", "linear"}, {"factor", 2.5}}}});
  FORETOKEN_ASSERT_OK(linear);
  EXPECT_EQ(linear->rope_scaling.type, RopeScaling::Type::kLinear);
  EXPECT_EQ(linear->rope_scaling.factor, 2.5f);
}

TEST(ModelConfigTest, FieldsThatChangeNothingPass) {
  for (const char* text :
       {R"({"num_key_value_heads": null})", R"({"head_dim": null})",
        R"({"rope_scaling": null, "rope_parameters": null})",
        R"({"rope_parameters": {"rope_type": "default"}})",
        R"({"hidden_act": "silu"})", R"({"pretraining_tp": 1})",
        R"({"torch_dtype": "bfloat16", "dtype": "bfloat16"})",
        R"({"some_new_field": [1, {"a": 2}], "use_cache": true})",
        R"({"num_experts": 0, "clip_qkv": null, "logit_scale": 1.0})",
        R"({"layer_types": ["full_attention", "full_attention"]})",
        R"({"sliding_window": 4})",  // Llama has no window
        R"({"auto_map": {"AutoConfig": "configuration.Config"}})",
        R"({"bos_token_id": null, "eos_token_id": null})",
        R"({"quantization_config": null})",
        R"({"partial_rotary_factor": 1})"}) {
    FORETOKEN_EXPECT_OK(ParseWithNulls(Json::object(), text)) << text;
  }
}

TEST(ModelConfigTest, AWindowAsLongAsTheContextNeverBinds) {
  const Json mistral = {{"model_type", "mistral"},
                        {"architectures", {"MistralForCausalLM"}}};
  const Json qwen2 = {{"model_type", "qwen2"},
                      {"architectures", {"Qwen2ForCausalLM"}}};
  struct Case {
    Json family;
    const char* fields;
  };
  for (const Case& test :
       {Case{mistral, R"({"sliding_window": null})"},
        Case{mistral, R"({"sliding_window": 32})"},
        Case{mistral, R"({"sliding_window": 8, "use_sliding_window": false})"},
        Case{qwen2, R"({"sliding_window": 8})"},
        Case{qwen2, R"({"sliding_window": 8, "use_sliding_window": false})"},
        Case{qwen2, R"({"sliding_window": 32, "use_sliding_window": true})"},
        Case{qwen2, R"({"sliding_window": 8, "use_sliding_window": true,
                        "max_window_layers": 2})"}}) {
    FORETOKEN_EXPECT_OK(ParseWithNulls(test.family, test.fields))
        << test.fields;
  }
}

struct Refusal {
  const char* changes;  // null removes a field
  absl::StatusCode code;
  const char* message;
};

TEST(ModelConfigTest, RefusesByFileFieldAndValue) {
  const Refusal kRefusals[] = {
      {R"({"model_type": "gemma2"})", kUnsupported,
       "config.json: model_type is \"gemma2\", want llama, mistral, qwen2 or "
       "qwen3"},
      {R"({"model_type": null})", kInvalid,
       "config.json: model_type is missing, want llama, mistral, qwen2 or "
       "qwen3"},
      {R"({"model_type": 3})", kInvalid,
       "config.json: model_type is 3, want a string"},
      {R"({"architectures": ["LlamaForSequenceClassification"]})", kUnsupported,
       "config.json: architectures is [\"LlamaForSequenceClassification\"], "
       "want [\"LlamaForCausalLM\"]"},
      {R"({"hidden_act": "gelu"})", kUnsupported,
       "config.json: hidden_act is \"gelu\", want \"silu\""},
      {R"({"hidden_size": null})", kInvalid,
       "config.json: hidden_size is missing, want an integer in 1..65536"},
      {R"({"hidden_size": "8"})", kInvalid,
       "config.json: hidden_size is \"8\", want an integer in 1..65536"},
      {R"({"hidden_size": 8.0})", kInvalid,
       "config.json: hidden_size is 8.0, want an integer in 1..65536"},
      {R"({"hidden_size": 9})", kInvalid,
       "config.json: hidden_size is 9, want a multiple of num_attention_heads "
       "2, or head_dim given apart"},
      {R"({"hidden_size": 6})", kInvalid,
       "config.json: hidden_size is 6, want an even head_dim of at most 1024, "
       "not 3"},
      {R"({"head_dim": 5})", kInvalid,
       "config.json: head_dim is 5, want an even head_dim of at most 1024, not "
       "5"},
      {R"({"head_dim": 1026})", kInvalid,
       "config.json: head_dim is 1026, want an integer in 1..1024"},
      {R"({"vocab_size": 18446744073709551615})", kInvalid,
       "config.json: vocab_size is 18446744073709551615, want an integer in "
       "1..4194304"},
      {R"({"vocab_size": -1})", kInvalid,
       "config.json: vocab_size is -1, want an integer in 1..4194304"},
      {R"({"num_hidden_layers": 0})", kInvalid,
       "config.json: num_hidden_layers is 0, want an integer in 1..1024"},
      {R"({"num_key_value_heads": 3})", kInvalid,
       "config.json: num_key_value_heads is 3, want a divisor of "
       "num_attention_heads 2"},
      {R"({"rms_norm_eps": 0})", kInvalid,
       "config.json: rms_norm_eps is 0, want a number in 1e-12..1"},
      {R"({"rope_theta": -10000.0})", kInvalid,
       "config.json: rope_theta is -10000.0, want a number in 1..1e+12"},
      {R"({"rope_scaling": {"type": "yarn", "factor": 4.0}})", kUnsupported,
       "config.json: rope_scaling.type is \"yarn\", want default, linear or "
       "llama3"},
      {R"({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}})",
       kUnsupported,
       "config.json: rope_parameters.rope_type is \"dynamic\", want default, "
       "linear or llama3"},
      {R"({"rope_scaling": {"type": "linear"}})", kInvalid,
       "config.json: rope_scaling.factor is missing, want a number in "
       "1..1e+06"},
      {R"({"rope_scaling": {"type": "mrope", "rope_type": "default"}})",
       kInvalid,
       "config.json: rope_scaling.type is \"mrope\", want the same as "
       "rope_type "
       "default"},
      {R"({"rope_scaling": 2})", kInvalid,
       "config.json: rope_scaling is 2, want an object"},
      {R"({"rope_scaling": {"type": "linear", "factor": 2},
           "rope_parameters": {"type": "linear", "factor": 4}})",
       kInvalid,
       "config.json: rope_scaling is {\"factor\":2,\"type\":\"linear\"}, want "
       "the same as rope_parameters, or one of them only"},
      {R"({"rope_theta": 500, "rope_parameters": {"rope_theta": 600}})",
       kInvalid,
       "config.json: rope_parameters.rope_theta is 600, want the same as "
       "rope_theta 500"},
      {R"({"rope_parameters": {"full_attention": {"rope_theta": 600}}})",
       kUnsupported,
       "config.json: rope_parameters.full_attention is {\"rope_theta\":600}, "
       "want one rotary embedding for all layers"},
      {R"({"rope_parameters": {"partial_rotary_factor": 0.5}})", kUnsupported,
       "config.json: rope_parameters.partial_rotary_factor is 0.5, want 1"},
      {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8,
           "low_freq_factor": 4, "high_freq_factor": 4,
           "original_max_position_embeddings": 16}})",
       kInvalid,
       "config.json: rope_scaling.high_freq_factor is 4, want more than "
       "low_freq_factor 4"},
      {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8,
           "low_freq_factor": 1, "high_freq_factor": 4}})",
       kInvalid,
       "config.json: rope_scaling.original_max_position_embeddings is missing, "
       "want an integer in 1..16777216"},
      {R"({"original_max_position_embeddings": 8,
           "rope_scaling": {"rope_type": "llama3", "factor": 8,
           "low_freq_factor": 1, "high_freq_factor": 4,
           "original_max_position_embeddings": 16}})",
       kInvalid,
       "config.json: original_max_position_embeddings is 8, want 16 as in "
       "rope_scaling"},
      {R"({"tie_word_embeddings": 1})", kInvalid,
       "config.json: tie_word_embeddings is 1, want true or false"},
      {R"({"eos_token_id": 10})", kInvalid,
       "config.json: eos_token_id is 10, want token ids in 0..9, at most 64"},
      {R"({"eos_token_id": [2, "x"]})", kInvalid,
       "config.json: eos_token_id is [2,\"x\"], want token ids in 0..9, at "
       "most "
       "64"},
      {R"({"bos_token_id": [1, 2]})", kInvalid,
       "config.json: bos_token_id is [1,2], want one token id"},
      {R"({"layer_types": ["full_attention", "sliding_attention"]})",
       kUnsupported,
       "config.json: layer_types is "
       "[\"full_attention\",\"sliding_attention\"], "
       "want \"full_attention\" for each of the 2 layers"},
      {R"({"layer_types": ["full_attention"]})", kUnsupported,
       "config.json: layer_types is [\"full_attention\"], want "
       "\"full_attention\" for each of the 2 layers"},
      {R"({"use_sliding_window": true})", kUnsupported,
       "config.json: use_sliding_window is true, want false in this family"},
      {R"({"model_type": "mistral", "architectures": ["MistralForCausalLM"],
           "sliding_window": 31})",
       kUnsupported,
       "config.json: sliding_window is 31, want null or a window of at least "
       "max_position_embeddings 32"},
      {R"({"model_type": "mistral", "architectures": null})", kUnsupported,
       "config.json: sliding_window is missing, want null or a window of at "
       "least max_position_embeddings 32"},
      {R"({"model_type": "mistral", "architectures": null,
           "sliding_window": 32, "attention_bias": true})",
       kUnsupported,
       "config.json: attention_bias is true, want false in this family"},
      {R"({"model_type": "mistral", "architectures": null,
           "sliding_window": 32, "num_key_value_heads": null})",
       kInvalid,
       "config.json: num_key_value_heads is missing, want an integer in "
       "1..1024"},
      {R"({"model_type": "qwen2", "architectures": null,
           "sliding_window": 16, "use_sliding_window": true,
           "max_window_layers": 1})",
       kUnsupported,
       "config.json: sliding_window is 16, want use_sliding_window false or a "
       "window of at least max_position_embeddings 32"},
      {R"({"model_type": "qwen3", "architectures": null, "mlp_bias": true})",
       kUnsupported,
       "config.json: mlp_bias is true, want false in this family"},
      {R"({"auto_map": {"AutoModelForCausalLM": "modeling.Mine"}})",
       kUnsupported,
       "config.json: auto_map is {\"AutoModelForCausalLM\":\"modeling.Mine\"}, "
       "want no AutoModelForCausalLM of the checkpoint's own"},
  };
  for (const Refusal& refusal : kRefusals) {
    EXPECT_THAT(Parse(*ParseJson(refusal.changes)),
                StatusIs(refusal.code, refusal.message))
        << refusal.changes;
  }
}

TEST(ModelConfigTest, RefusesFieldsThatWouldChangeTheOutput) {
  const Refusal kRefusals[] = {
      {R"({"quantization_config": {"bits": 4}})", kUnsupported,
       "config.json: quantization_config is {\"bits\":4}, want none: the "
       "engine "
       "does not support it"},
      {R"({"num_local_experts": 8})", kUnsupported,
       "config.json: num_local_experts is 8, want 0"},
      {R"({"num_experts_per_tok": 2})", kUnsupported,
       "config.json: num_experts_per_tok is 2, want 0"},
      {R"({"partial_rotary_factor": 0.5})", kUnsupported,
       "config.json: partial_rotary_factor is 0.5, want 1"},
      {R"({"pretraining_tp": 2})", kUnsupported,
       "config.json: pretraining_tp is 2, want 1"},
      {R"({"final_logit_softcapping": 30.0})", kUnsupported,
       "config.json: final_logit_softcapping is 30.0, want 0"},
      {R"({"attn_logit_softcapping": 50.0})", kUnsupported,
       "config.json: attn_logit_softcapping is 50.0, want 0"},
      {R"({"attention_multiplier": 0.1})", kUnsupported,
       "config.json: attention_multiplier is 0.1, want 1"},
      {R"({"logits_scaling": 8})", kUnsupported,
       "config.json: logits_scaling is 8, want 1"},
      {R"({"residual_multiplier": 0.22})", kUnsupported,
       "config.json: residual_multiplier is 0.22, want 1"},
      {R"({"clip_qkv": 8})", kUnsupported,
       "config.json: clip_qkv is 8, want none: the engine does not support it"},
      {R"({"use_qk_norm": true})", kUnsupported,
       "config.json: use_qk_norm is true, want false"},
      {R"({"no_rope_layers": [1, 0]})", kUnsupported,
       "config.json: no_rope_layers is [1,0], want []"},
      {R"({"kv_lora_rank": 512})", kUnsupported,
       "config.json: kv_lora_rank is 512, want none: the engine does not "
       "support it"},
  };
  for (const Refusal& refusal : kRefusals) {
    EXPECT_THAT(Parse(*ParseJson(refusal.changes)),
                StatusIs(refusal.code, refusal.message))
        << refusal.changes;
  }
}

TEST(ModelConfigTest, LongValuesAreCutInMessages) {
  const std::string message(
      Parse({{"hidden_act", std::string(1 << 20, 'x')}}).status().message());
  EXPECT_LT(message.size(), 200u);
  Json many = Json::array();
  for (int i = 0; i < 1000; ++i) many.push_back(i);
  EXPECT_THAT(Parse({{"eos_token_id", many}}),
              StatusIs(kInvalid,
                       "config.json: eos_token_id is a list of 1000 entries, "
                       "want token ids in 0..9, at most 64"));
}

TEST(ModelConfigTest, RefusesWhatIsNoObject) {
  for (const char* text : {"[]", "3", "null", "\"llama\""}) {
    EXPECT_THAT(ModelConfig::FromJson(*ParseJson(text), "config.json"),
                StatusIs(kInvalid, "config.json: not a JSON object"));
  }
}

TEST(ModelConfigTest, AbsentSpecialTokensAreTheFamilysOwn) {
  Json json = TinyConfigJson();
  json.erase("bos_token_id");
  json.erase("eos_token_id");
  const auto llama = ModelConfig::FromJson(json, "config.json");
  FORETOKEN_ASSERT_OK(llama);
  EXPECT_EQ(llama->bos_token, 1);
  EXPECT_THAT(llama->eos_tokens, ElementsAre(2));
  json["eos_token_id"] = nullptr;
  EXPECT_THAT(ModelConfig::FromJson(json, "config.json")->eos_tokens,
              IsEmpty());
  json.erase("eos_token_id");
  json.merge_patch(Family("qwen2", "Qwen2ForCausalLM"));
  const auto qwen2 = ModelConfig::FromJson(json, "config.json");
  FORETOKEN_ASSERT_OK(qwen2);
  EXPECT_EQ(qwen2->bos_token, -1);
  EXPECT_THAT(qwen2->eos_tokens, IsEmpty());
}

TEST(GenerationConfigTest, ItsEndTokensReplaceThoseOfTheConfig) {
  ModelConfig config = *Parse(Json::object());
  FORETOKEN_ASSERT_OK(config.MergeGenerationConfig(
      {{"eos_token_id", {7, 3, 7}}, {"temperature", 0.6}}, "generation.json"));
  EXPECT_THAT(config.eos_tokens, ElementsAre(3, 7));
  EXPECT_EQ(config.bos_token, 1);
  FORETOKEN_ASSERT_OK(config.MergeGenerationConfig(
      {{"eos_token_id", nullptr}, {"bos_token_id", 4}}, "generation.json"));
  EXPECT_THAT(config.eos_tokens, ElementsAre(3, 7));
  EXPECT_EQ(config.bos_token, 4);
  EXPECT_THAT(
      config.MergeGenerationConfig({{"eos_token_id", {10}}}, "generation.json"),
      StatusIs(kInvalid,
               "generation.json: eos_token_id is [10], want token ids in 0..9, "
               "at most 64"));
}

TEST(ModelConfigTest, ValidateNamesTheBadField) {
  ModelConfig config = *Parse(Json::object());
  config.d_ff = -1;
  EXPECT_THAT(config.Validate(),
              StatusIs(kInvalid, "model config: d_ff is -1, want 1..1048576"));
  config = *Parse(Json::object());
  config.n_heads = 3;
  config.n_kv_heads = 2;
  EXPECT_THAT(config.Validate(),
              StatusIs(kInvalid,
                       "model config: n_kv_heads is 2, want a divisor of "
                       "n_heads 3"));
  config = *Parse(Json::object());
  config.head_dim = 7;
  EXPECT_THAT(
      config.Validate(),
      StatusIs(kInvalid, "model config: head_dim is 7, want an even number"));
}

}  // namespace
}  // namespace foretoken
