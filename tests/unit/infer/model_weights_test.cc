#include "common/infer/model_weights.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/digest.h"
#include "common/base/json.h"
#include "common/infer/random_weights.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/infer/tiny_checkpoint.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::foretoken::testing::TinyCheckpoint;
using ::foretoken::testing::TinyTensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

std::vector<float> Values(const WeightTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.size()));
  tensor.CopyTo(0, absl::MakeSpan(values));
  return values;
}

std::vector<float> Values(const TinyTensor& tensor) {
  std::vector<float> values(tensor.data.size() / 4);
  ConvertToFloat32(WeightType::kFloat32, tensor.data.data(),
                   absl::MakeSpan(values));
  return values;
}

TEST(LoadWeightsTest, EveryTensorIsWhereItBelongs) {
  TempDir dir;
  TinyCheckpoint checkpoint(
      Json::object({{"attention_bias", true}, {"mlp_bias", true}}));
  checkpoint.Write(dir);
  const auto weights = ModelWeights::Load(dir.path());
  FORETOKEN_ASSERT_OK(weights);
  const auto expect = [&checkpoint](const WeightTensor& got,
                                    const std::string& name) {
    const TinyTensor& want = checkpoint.Find(name);
    ASSERT_TRUE(got.present()) << name;
    EXPECT_EQ(got.rows, want.shape.size() == 2 ? want.shape[0] : 1) << name;
    EXPECT_EQ(got.cols, want.shape.back()) << name;
    EXPECT_EQ(Values(got), Values(want)) << name;
  };
  expect((*weights)->embedding(), "model.embed_tokens.weight");
  expect((*weights)->output(), "lm_head.weight");
  expect((*weights)->final_norm(), "model.norm.weight");
  ASSERT_EQ((*weights)->layers().size(), 2u);
  for (int i = 0; i < 2; ++i) {
    const LayerWeights& layer = (*weights)->layers()[i];
    const std::string prefix = absl::StrCat("model.layers.", i, ".");
    expect(layer.attention_norm, prefix + "input_layernorm.weight");
    expect(layer.q, prefix + "self_attn.q_proj.weight");
    expect(layer.k, prefix + "self_attn.k_proj.weight");
    expect(layer.v, prefix + "self_attn.v_proj.weight");
    expect(layer.o, prefix + "self_attn.o_proj.weight");
    expect(layer.q_bias, prefix + "self_attn.q_proj.bias");
    expect(layer.k_bias, prefix + "self_attn.k_proj.bias");
    expect(layer.v_bias, prefix + "self_attn.v_proj.bias");
    expect(layer.o_bias, prefix + "self_attn.o_proj.bias");
    expect(layer.ffn_norm, prefix + "post_attention_layernorm.weight");
    expect(layer.gate, prefix + "mlp.gate_proj.weight");
    expect(layer.up, prefix + "mlp.up_proj.weight");
    expect(layer.down, prefix + "mlp.down_proj.weight");
    expect(layer.gate_bias, prefix + "mlp.gate_proj.bias");
    expect(layer.up_bias, prefix + "mlp.up_proj.bias");
    expect(layer.down_bias, prefix + "mlp.down_proj.bias");
    EXPECT_FALSE(layer.q_norm.present() || layer.k_norm.present());
  }
}

TEST(LoadWeightsTest, ShardsGiveTheSameModelAndDigest) {
  const TinyCheckpoint checkpoint;
  TempDir single, sharded, other;
  checkpoint.Write(single);
  checkpoint.WriteShards(sharded, 5);
  const auto a = ModelWeights::Load(single.path());
  const auto b = ModelWeights::Load(sharded.path());
  FORETOKEN_ASSERT_OK(a);
  FORETOKEN_ASSERT_OK(b);
  EXPECT_EQ(Values((*a)->layers()[1].down), Values((*b)->layers()[1].down));
  EXPECT_EQ((*a)->digest(), (*b)->digest());

  TinyCheckpoint changed;
  changed.Find("model.layers.1.mlp.down_proj.weight").data.back() ^= 1;
  changed.Write(other);
  EXPECT_NE((*a)->digest(), (*ModelWeights::Load(other.path()))->digest());
}

TEST(LoadWeightsTest, TheDigestIsComputedOnceForManyThreads) {
  TempDir dir;
  TinyCheckpoint().Write(dir);
  const auto weights = ModelWeights::Load(dir.path());
  FORETOKEN_ASSERT_OK(weights);
  std::vector<const Sha256Digest*> seen(4);
  std::vector<std::thread> threads;
  for (auto& slot : seen) {
    threads.emplace_back([&weights, &slot] { slot = &(*weights)->digest(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Sha256Digest* digest : seen) EXPECT_EQ(digest, seen[0]);
}

TEST(LoadWeightsTest, ATiedModelUsesItsEmbeddingAsOutput) {
  TempDir dir;
  TinyCheckpoint checkpoint(Json::object({{"tie_word_embeddings", true}}));
  checkpoint.Write(dir);
  const auto weights = ModelWeights::Load(dir.path());
  FORETOKEN_ASSERT_OK(weights);
  EXPECT_EQ((*weights)->output().data, (*weights)->embedding().data);

  // A copy of it in the file is harmless, another matrix is not.
  TinyTensor copy = checkpoint.Find("model.embed_tokens.weight");
  copy.name = "lm_head.weight";
  checkpoint.tensors.push_back(copy);
  checkpoint.Write(dir);
  FORETOKEN_EXPECT_OK(ModelWeights::Load(dir.path()));
  checkpoint.tensors.back().data[0] ^= 1;
  checkpoint.Write(dir);
  EXPECT_THAT(
      ModelWeights::Load(dir.path()),
      StatusIs(kInvalid,
               absl::StrCat(dir.File("model.safetensors"),
                            ": tensor lm_head.weight differs from "
                            "model.embed_tokens.weight, but config.json: "
                            "tie_word_embeddings is true")));
}

TEST(LoadWeightsTest, GenerationConfigSetsTheEndTokens) {
  TempDir dir;
  TinyCheckpoint().Write(dir);
  dir.Write("generation_config.json", R"({"eos_token_id": [5, 4]})");
  const auto weights = ModelWeights::Load(dir.path());
  FORETOKEN_ASSERT_OK(weights);
  EXPECT_THAT((*weights)->config().eos_tokens, ElementsAre(4, 5));
  dir.Write("generation_config.json", "{");
  EXPECT_THAT(ModelWeights::Load(dir.path()),
              StatusIs(kInvalid, StartsWith(dir.File("generation_config.json") +
                                            ": bad JSON")));
}

TEST(LoadWeightsTest, RotaryTablesOfOldCheckpointsAreIgnored) {
  TempDir dir;
  TinyCheckpoint checkpoint;
  checkpoint.tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq",
                                WeightType::kFloat32,
                                {2},
                                std::vector<uint8_t>(8)});
  checkpoint.Write(dir);
  FORETOKEN_EXPECT_OK(ModelWeights::Load(dir.path()));
}

TEST(LoadWeightsTest, AMissingTensorIsNamedWithItsShape) {
  TempDir dir;
  TinyCheckpoint checkpoint;
  checkpoint.Remove("model.layers.1.self_attn.k_proj.weight");
  checkpoint.Write(dir);
  EXPECT_THAT(ModelWeights::Load(dir.path()),
              StatusIs(kInvalid,
                       absl::StrCat(dir.path(),
                                    ": tensor model.layers.1.self_attn.k_proj."
                                    "weight is missing, want [4, 8]")));
}

TEST(LoadWeightsTest, EveryTensorIsMissedWhenItIsGone) {
  TempDir dir;
  const TinyCheckpoint whole;
  for (const TinyTensor& tensor : whole.tensors) {
    TinyCheckpoint checkpoint;
    checkpoint.Remove(tensor.name);
    checkpoint.Write(dir);
    EXPECT_THAT(ModelWeights::Load(dir.path()),
                StatusIs(kInvalid, HasSubstr(tensor.name + " is missing")));
  }
}

TEST(LoadWeightsTest, AnUnexpectedTensorIsRefused) {
  TempDir dir;
  TinyCheckpoint checkpoint;
  checkpoint.tensors.push_back({"model.layers.0.self_attn.q_proj.bias",
                                WeightType::kFloat32,
                                {8},
                                std::vector<uint8_t>(32)});
  checkpoint.Write(dir);
  EXPECT_THAT(
      ModelWeights::Load(dir.path()),
      StatusIs(kInvalid,
               absl::StrCat(dir.File("model.safetensors"),
                            ": tensor model.layers.0.self_attn.q_proj.bias is "
                            "unexpected: the llama model of config.json has "
                            "none of that name")));
}

TEST(LoadWeightsTest, AWrongShapeNamesBothShapes) {
  TempDir dir;
  TinyCheckpoint checkpoint;
  checkpoint.Find("model.layers.0.mlp.up_proj.weight").shape = {8, 12};
  checkpoint.Write(dir);
  EXPECT_THAT(ModelWeights::Load(dir.path()),
              StatusIs(kInvalid,
                       absl::StrCat(dir.File("model.safetensors"),
                                    ": tensor model.layers.0.mlp.up_proj.weight"
                                    " has shape [8, 12], want [12, 8] by "
                                    "config.json")));
}

TEST(LoadWeightsTest, AnotherVocabularyInTheConfigIsAWrongShape) {
  TempDir dir;
  TinyCheckpoint checkpoint;
  checkpoint.config["vocab_size"] = 11;
  checkpoint.Write(dir);
  EXPECT_THAT(
      ModelWeights::Load(dir.path()),
      StatusIs(kInvalid, absl::StrCat(dir.File("model.safetensors"),
                                      ": tensor model.embed_tokens.weight has "
                                      "shape [10, 8], want [11, 8] by "
                                      "config.json")));
}

TEST(LoadWeightsTest, AnIntegerTensorIsNoWeight) {
  TempDir dir;
  TinyCheckpoint checkpoint;
  checkpoint.Write(dir);
  std::string bytes = checkpoint.Serialize(0, checkpoint.tensors.size());
  const size_t at = bytes.find("\"F32\"");
  bytes.replace(at, 5, "\"I32\"");  // of the first tensor in the header
  dir.Write("model.safetensors", bytes);
  EXPECT_THAT(ModelWeights::Load(dir.path()),
              StatusIs(kInvalid, HasSubstr(" has type I32, want F32, F16 or "
                                           "BF16")));
}

TEST(LoadWeightsTest, ATruncatedFileIsRefusedWhereverItEnds) {
  TempDir dir;
  const TinyCheckpoint checkpoint;
  checkpoint.Write(dir);
  const std::string whole = checkpoint.Serialize(0, checkpoint.tensors.size());
  for (size_t length = 0; length < whole.size(); length += 97) {
    dir.Write("model.safetensors", whole.substr(0, length));
    EXPECT_THAT(
        ModelWeights::Load(dir.path()),
        StatusIs(kInvalid, StartsWith(dir.File("model.safetensors") + ": ")));
  }
}

TEST(LoadWeightsTest, AWatchSeesTheDigestAndThenEveryMatrixOnce) {
  TempDir dir;
  TinyCheckpoint().Write(dir);
  auto weights = ModelWeights::Load(dir.path());
  FORETOKEN_ASSERT_OK(weights);
  const WeightBytes bytes = BytesOf(**weights);
  EXPECT_GT(bytes.all, bytes.matrices);
  int64_t read = 0;
  (*weights)->Watch([&](int64_t more) { read += more; });
  (*weights)->digest();
  EXPECT_EQ(read, bytes.all);
  for (int i = 0; i < 2; ++i) {
    (*weights)->Release((*weights)->embedding());
    (*weights)->Unload((*weights)->embedding());
    (*weights)->Release((*weights)->final_norm());
  }
  EXPECT_EQ(read, bytes.all + (*weights)->embedding().bytes());
  (*weights)->Watch(nullptr);
  (*weights)->Release((*weights)->layers()[0].q);
  EXPECT_EQ(read, bytes.all + (*weights)->embedding().bytes());
}

TEST(LoadWeightsTest, MissingFilesAreNotFound) {
  TempDir dir;
  EXPECT_THAT(ModelWeights::Load(dir.path()),
              StatusIs(absl::StatusCode::kNotFound,
                       absl::StrCat(dir.path(),
                                    ": not a model directory: it "
                                    "has no config.json")));
  TinyCheckpoint().Write(dir);
  std::filesystem::remove(dir.File("model.safetensors"));
  EXPECT_THAT(ModelWeights::Load(dir.path()),
              StatusIs(absl::StatusCode::kNotFound,
                       absl::StrCat(dir.path(),
                                    ": neither model.safetensors nor "
                                    "model.safetensors.index.json is there")));
}

TEST(ShardIndexTest, MustAgreeWithItsShards) {
  const TinyCheckpoint checkpoint;
  TempDir dir;
  const Json map = checkpoint.WriteShards(dir, 2);
  const std::string index = dir.File("model.safetensors.index.json");
  const std::string first = dir.File("model-00001-of-00002.safetensors");
  const auto load_with = [&dir](const Json& weight_map) {
    dir.Write("model.safetensors.index.json",
              DumpJson({{"weight_map", weight_map}}));
    return ModelWeights::Load(dir.path()).status();
  };
  FORETOKEN_EXPECT_OK(load_with(map));

  Json bent = map;
  bent["extra"] = "model-00001-of-00002.safetensors";
  EXPECT_THAT(
      load_with(bent),
      StatusIs(kInvalid, absl::StrCat(first,
                                      ": tensor extra is missing, but model."
                                      "safetensors.index.json puts it here")));
  bent = map;
  bent.erase("model.embed_tokens.weight");
  EXPECT_THAT(load_with(bent),
              StatusIs(kInvalid,
                       absl::StrCat(first,
                                    ": tensor model.embed_tokens.weight is not "
                                    "listed in model.safetensors.index.json")));
  for (const char* outside : {"../secret", "/etc/passwd", "..", "", "a/b"}) {
    bent = map;
    bent["model.norm.weight"] = outside;
    EXPECT_THAT(load_with(bent),
                StatusIs(kInvalid,
                         absl::StrCat(index,
                                      ": weight_map of tensor model.norm.weight"
                                      " is not the name of a file beside it")));
  }
  bent = map;
  bent["model.norm.weight"] = "gone.safetensors";
  EXPECT_THAT(load_with(bent), StatusIs(absl::StatusCode::kNotFound,
                                        HasSubstr("gone.safetensors")));
  EXPECT_THAT(load_with(Json::object()),
              StatusIs(kInvalid, index + ": weight_map is missing or empty"));
}

TEST(ShardIndexTest, ATensorInTwoShardsIsRefused) {
  TinyCheckpoint checkpoint;
  checkpoint.tensors.push_back(checkpoint.Find("model.embed_tokens.weight"));
  TempDir dir;
  checkpoint.WriteShards(dir, 2);
  EXPECT_THAT(
      ModelWeights::Load(dir.path()),
      StatusIs(kInvalid,
               absl::StrCat(dir.File("model-00002-of-00002.safetensors"),
                            ": tensor model.embed_tokens.weight is also in ",
                            dir.File("model-00001-of-00002.safetensors"))));
}

ModelConfig RandomConfig() {
  ModelConfig config =
      *ModelConfig::FromJson(testing::TinyConfigJson(), "config.json");
  config.d_model = 256;
  config.d_ff = 64;
  config.qkv_bias = config.qk_norm = true;
  return config;
}

TEST(RandomWeightsTest, DependOnTheSeedAlone) {
  const ModelConfig config = RandomConfig();
  const auto a = ModelWeights::Random(config, WeightType::kBFloat16, 1);
  const auto b = ModelWeights::Random(config, WeightType::kBFloat16, 1);
  const auto c = ModelWeights::Random(config, WeightType::kBFloat16, 2);
  FORETOKEN_ASSERT_OK(a);
  EXPECT_EQ((*a)->digest(), (*b)->digest());
  EXPECT_NE((*a)->digest(), (*c)->digest());
  EXPECT_NE(Values((*a)->layers()[0].q), Values((*a)->layers()[1].q));
}

TEST(RandomWeightsTest, TheDigestNamesSeedTypeAndShapeWithoutReadingThem) {
  const ModelConfig config = RandomConfig();
  ModelConfig narrow = config, deep = config;
  narrow.d_ff -= 1;
  deep.n_layers += 1;
  const auto digest = [](const ModelConfig& of, WeightType type, uint64_t seed,
                         bool release) {
    const auto weights = ModelWeights::Random(of, type, seed);
    // A byte that is read now is another one than was drawn.
    for (const LayerWeights& layer : (*weights)->layers()) {
      if (release) (*weights)->Release(layer.up);
    }
    return HexDigest((*weights)->digest());
  };
  const WeightType bf16 = WeightType::kBFloat16;
  const std::string one = digest(config, bf16, 1, false);
  EXPECT_EQ(digest(config, bf16, 1, true), one);
  EXPECT_NE(digest(config, bf16, 2, false), one);
  EXPECT_NE(digest(config, WeightType::kFloat16, 1, false), one);
  EXPECT_NE(digest(narrow, bf16, 1, false), one);
  EXPECT_NE(digest(deep, bf16, 1, false), one);
}

// The digest contains the version, not these bytes: a change of them must
// change kRandomWeightsVersion, too.
TEST(RandomWeightsTest, OneVersionHasTheSameBytes) {
  EXPECT_EQ(kRandomWeightsVersion, 1);
  ModelConfig config = RandomConfig();
  config.head_dim = 128;
  config.d_ff = 256;
  Sha256 sha;
  for (const WeightType type :
       {WeightType::kFloat32, WeightType::kFloat16, WeightType::kBFloat16,
        WeightType::kQ8_0, WeightType::kQ4_K}) {
    const auto weights = ModelWeights::Random(config, type, 3);
    FORETOKEN_ASSERT_OK(weights);
    const LayerWeights& layer = (*weights)->layers()[1];
    for (const WeightTensor* tensor :
         {&layer.attention_norm, &layer.q, &layer.o, &layer.q_bias}) {
      sha.Update(absl::MakeConstSpan(tensor->data, tensor->bytes()));
    }
  }
  EXPECT_EQ(HexDigest(sha.Finish()),
            "364e74230a1c8e5550cc976a8da2d97e3c6f9cd56b7e76d25d2822f2f9729ee7");
}

TEST(RandomWeightsTest, HaveTheVarianceThatKeepsActivationsNearOne) {
  for (const WeightType type :
       {WeightType::kFloat32, WeightType::kFloat16, WeightType::kBFloat16}) {
    const auto weights = ModelWeights::Random(RandomConfig(), type, 7);
    FORETOKEN_ASSERT_OK(weights);
    const std::vector<float> up = Values((*weights)->layers()[0].up);
    double sum = 0, squares = 0;
    for (const float value : up) {
      sum += value;
      squares += static_cast<double>(value) * value;
    }
    const double count = static_cast<double>(up.size());
    // 16384 draws: five standard errors of the mean and of the variance.
    EXPECT_LT(std::abs(sum / count), 5 / std::sqrt(256 * count));
    EXPECT_NEAR(squares / count * 256, 1.0, 5 * 0.9 / std::sqrt(count));
    for (const float value : Values((*weights)->final_norm())) {
      EXPECT_NEAR(value, 1.0f, 0.1f + 1.0f / 256);  // a bf16 rounding
    }
    EXPECT_TRUE((*weights)->layers()[0].q_bias.present());
    EXPECT_TRUE((*weights)->layers()[1].k_norm.present());
  }
}

TEST(RandomWeightsTest, QuantisedMatricesHaveThatVarianceAndVectorsAreFloats) {
  ModelConfig config = RandomConfig();
  config.d_ff = 256;
  config.head_dim = 256 / config.n_heads;
  for (const WeightType type :
       {WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kQ4_1,
        WeightType::kQ5_0, WeightType::kQ5_1, WeightType::kQ4_K,
        WeightType::kQ5_K, WeightType::kQ6_K}) {
    const auto weights = ModelWeights::Random(config, type, 7);
    FORETOKEN_ASSERT_OK(weights);
    const LayerWeights& layer = (*weights)->layers()[0];
    EXPECT_EQ(layer.up.type, type);
    EXPECT_EQ(layer.ffn_norm.type, WeightType::kFloat32);
    EXPECT_EQ(layer.q_bias.type, WeightType::kFloat32);
    double squares = 0;
    const std::vector<float> up = Values(layer.up);
    for (const float value : up) {
      squares += static_cast<double>(value) * value;
    }
    // 16 levels with both ends in use have a variance 17/15 of the uniform one.
    EXPECT_NEAR(squares / static_cast<double>(up.size()) * 256, 1.0, 0.15)
        << WeightTypeName(type);
    EXPECT_NE(up, Values(layer.gate));
  }
}

TEST(RandomWeightsTest, ReleasingATensorLeavesItsNeighbours) {
  const auto weights =
      ModelWeights::Random(RandomConfig(), WeightType::kFloat32, 7);
  FORETOKEN_ASSERT_OK(weights);
  const LayerWeights& layer = (*weights)->layers()[0];
  const std::vector<float> gate = Values(layer.gate);
  const std::vector<float> down = Values(layer.down);
  (*weights)->Release(layer.up);        // 64 KiB between them
  (*weights)->Release(layer.ffn_norm);  // less than a page: stays
  EXPECT_EQ(Values(layer.gate), gate);
  EXPECT_EQ(Values(layer.down), down);
  EXPECT_GT(Values(layer.ffn_norm)[0], 0.8f);
  EXPECT_EQ(Values(layer.up)[8192], 0.0f);  // gone
}

TEST(RandomWeightsTest, RefusesABadShape) {
  ModelConfig config = RandomConfig();
  config.vocab_size = 0;
  EXPECT_THAT(
      ModelWeights::Random(config, WeightType::kFloat32, 1),
      StatusIs(kInvalid, "model config: vocab_size is 0, want 1..4194304"));
  config = RandomConfig();
  config.d_model = 1 << 16;
  config.d_ff = 1 << 20;
  EXPECT_THAT(ModelWeights::Random(config, WeightType::kFloat32, 1),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "random weights: more than 274877906944 bytes for this "
                       "shape"));
  EXPECT_THAT(
      ModelWeights::Random(RandomConfig(), WeightType::kQ6_K, 1),
      StatusIs(kInvalid,
               "random weights: model.layers.0.self_attn.o_proj.weight has "
               "rows of 8, want a multiple of 256 for Q6_K"));
}

TEST(LoadWeightsTest, TheOwnPoolingOfAnEmbeddingModelIsRead) {
  TempDir dir;
  TinyCheckpoint().Write(dir);
  const auto load = [&] { return ModelWeights::Load(dir.path()); };
  FORETOKEN_ASSERT_OK(load());
  EXPECT_EQ((*load())->config().pooling, Pooling::kMean);
  std::filesystem::create_directory(dir.path() + "/1_Pooling");
  const std::pair<const char*, Pooling> cases[] = {
      {R"({})", Pooling::kMean},
      {R"({"pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": false,
           "pooling_mode_cls_token": false, "include_prompt": true})",
       Pooling::kMean},
      {R"({"pooling_mode_mean_tokens": false, "pooling_mode_lasttoken": true})",
       Pooling::kLast},
      {R"({"pooling_mode_mean_tokens": false, "pooling_mode_cls_token": true})",
       Pooling::kNone},
      {R"({"pooling_mode_mean_tokens": true, "pooling_mode_max_tokens": true})",
       Pooling::kNone},
      {R"({"pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": true})",
       Pooling::kNone},
      {R"({"pooling_mode_mean_tokens": false})", Pooling::kNone},
      {R"({"pooling_mode": "lasttoken"})", Pooling::kLast},
      {R"({"pooling_mode": "cls"})", Pooling::kNone},
  };
  for (const auto& [json, want] : cases) {
    dir.Write("1_Pooling/config.json", json);
    const auto weights = load();
    FORETOKEN_ASSERT_OK(weights);
    EXPECT_EQ((*weights)->config().pooling, want) << json;
  }
  dir.Write("1_Pooling/config.json", R"({"pooling_mode_lasttoken": "yes"})");
  EXPECT_THAT(load(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("1_Pooling/config.json: "
                                         "pooling_mode_lasttoken")));
}

}  // namespace
}  // namespace foretoken
