#include "common/infer/gguf_model.h"

#include <fcntl.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/file.h"
#include "common/gguf/gguf_writer.h"
#include "common/infer/block_quants.h"
#include "common/infer/gguf_export.h"
#include "common/infer/model_weights.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_data.h"

namespace foretoken {
namespace {

using ::foretoken::testing::SourcePath;
using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kUnimplemented = absl::StatusCode::kUnimplemented;

ModelConfig Config() {
  ModelConfig config;
  config.d_model = 256;
  config.n_layers = 2;
  config.n_heads = 4;
  config.n_kv_heads = 2;
  config.head_dim = 64;
  config.d_ff = 96;  // no multiple of 256
  config.vocab_size = 40;
  config.max_positions = 128;
  config.bos_token = 1;
  config.eos_tokens = {2, 7};
  return config;
}

std::vector<float> Values(const WeightTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.size()));
  tensor.CopyTo(0, absl::MakeSpan(values));
  return values;
}

// Seeded weights of `config` as a file of that kind, after the keys of
// `writer`.
std::string Export(const TempDir& dir, const ModelConfig& config,
                   GgufFileKind kind,
                   std::vector<std::string>* fallbacks = nullptr,
                   GgufWriter writer = GgufWriter()) {
  const std::string path = dir.File("model.gguf");
  auto weights = ModelWeights::Random(config, WeightType::kFloat32, 3);
  ThreadPool pool(2);
  FORETOKEN_EXPECT_OK(ExportGguf(
      **weights, kind, path, pool, std::move(writer),
      [&](const GgufExportedTensor& tensor) {
        if (fallbacks == nullptr || tensor.type == tensor.wanted) return;
        fallbacks->push_back(absl::StrCat(tensor.name, " ",
                                          WeightTypeName(tensor.wanted), " ",
                                          WeightTypeName(tensor.type)));
      }));
  return path;
}

// `path` with one key (or a tensor of zeros) written anew or, without `write`,
// left out. Tensors for which `keep` is false are left out.
struct Change {
  std::string key;
  std::function<void(GgufWriter&)> write;
  std::function<bool(const std::string&)> keep;
};
std::string Rewrite(const TempDir& dir, const std::string& path,
                    const Change& change) {
  const auto files = GgufFiles::Open(path);
  FORETOKEN_CHECK(files.ok());
  GgufWriter writer;
  for (const auto& [key, value] : files->metadata.values()) {
    if (key != change.key) writer.Copy(key, value);
  }
  if (change.write) change.write(writer);
  std::string data(writer.tensor_bytes(), '\0');  // of a tensor written there
  data += GgufWriter::Padding(data.size());
  for (const auto& [name, stored] : files->tensors) {
    if (change.keep && !change.keep(name)) continue;
    const GgufTensor& tensor = stored.tensor;
    writer.Tensor(name, tensor.type, tensor.shape);
    data.append(reinterpret_cast<const char*>(tensor.data.data()),
                tensor.data.size());
    data += GgufWriter::Padding(data.size());
  }
  return dir.Write("changed.gguf", writer.Header() + data);
}

TEST(GgufModelTest, ConfigAndTensorsComeBackFromTheFile) {
  for (const ModelFamily family :
       {ModelFamily::kLlama, ModelFamily::kQwen2, ModelFamily::kQwen3}) {
    TempDir dir;
    ModelConfig config = Config();
    config.family = family;
    config.rope_theta = 5000.0f;
    config.qk_norm = family == ModelFamily::kQwen3;
    config.qkv_bias = family != ModelFamily::kQwen3;
    config.tied_embeddings = family == ModelFamily::kQwen2;
    config.mlp_bias = config.output_bias = family == ModelFamily::kLlama;
    const auto want = ModelWeights::Random(config, WeightType::kFloat32, 3);
    const auto got =
        ModelWeights::Load(Export(dir, config, GgufFileKind::kFloat32));
    FORETOKEN_ASSERT_OK(got);
    const ModelConfig& read = (*got)->config();
    EXPECT_EQ(read.family, family);
    EXPECT_EQ(read.n_kv_heads, 2);
    EXPECT_EQ(read.head_dim, 64);
    EXPECT_EQ(read.vocab_size, 40);
    EXPECT_EQ(read.max_positions, 128);
    EXPECT_EQ(read.rope_theta, 5000.0f);
    EXPECT_EQ(read.bos_token, 1);
    EXPECT_THAT(read.eos_tokens, ElementsAre(2, 7));
    EXPECT_EQ(read.tied_embeddings, config.tied_embeddings);
    const LayerWeights& a = (*want)->layers()[1];
    const LayerWeights& b = (*got)->layers()[1];
    for (const auto& member :
         {&LayerWeights::q, &LayerWeights::k, &LayerWeights::v,
          &LayerWeights::o, &LayerWeights::gate, &LayerWeights::up,
          &LayerWeights::down, &LayerWeights::ffn_norm, &LayerWeights::q_bias,
          &LayerWeights::k_bias, &LayerWeights::v_bias, &LayerWeights::o_bias,
          &LayerWeights::down_bias, &LayerWeights::q_norm}) {
      ASSERT_EQ((a.*member).present(), (b.*member).present());
      if ((a.*member).present()) {
        EXPECT_EQ(Values(a.*member), Values(b.*member));
      }
    }
    EXPECT_EQ(Values((*want)->output()), Values((*got)->output()));
    EXPECT_EQ(b.q.paired_rows, family == ModelFamily::kLlama ? 64 : 0);
  }
}

// Where the tokenizer takes llama.cpp's defaults the model must, too, or
// nothing would ever stop it.
TEST(GgufModelTest, EndTokensOfPiecesWithoutKeysAreTheDefaults) {
  TempDir dir;
  ModelConfig config = Config();
  config.bos_token = -1;
  config.eos_tokens.clear();
  const std::string path = Export(dir, config, GgufFileKind::kQ8_0);
  const auto read = [&](const char* model, std::vector<std::string> tokens,
                        std::optional<uint32_t> eos) {
    const auto weights = ModelWeights::Load(
        Rewrite(dir, path,
                {"",
                 [&](GgufWriter& writer) {
                   writer.String("tokenizer.ggml.model", model);
                   writer.Strings("tokenizer.ggml.tokens", tokens);
                   writer.Uint32("tokenizer.ggml.eot_token_id", 9);
                   if (!eos) return;
                   writer.Uint32("tokenizer.ggml.eos_token_id", *eos);
                 },
                 nullptr}));
    FORETOKEN_EXPECT_OK(weights);
    return (*weights)->config();
  };
  const std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  EXPECT_EQ(read("llama", tokens, {}).bos_token, 1);
  EXPECT_THAT(read("llama", tokens, {}).eos_tokens, ElementsAre(2, 9));
  EXPECT_THAT(read("llama", tokens, 7).eos_tokens, ElementsAre(7, 9));
  EXPECT_THAT(read("llama", {"<unk>", "<s>"}, {}).eos_tokens, ElementsAre(9));
  EXPECT_EQ(read("gpt2", tokens, {}).bos_token, -1);
  EXPECT_THAT(read("gpt2", tokens, {}).eos_tokens, ElementsAre(9));
}

TEST(GgufModelTest, AnyRangeOfATensorCanBeRead) {
  TempDir dir;
  const auto weights =
      ModelWeights::Load(Export(dir, Config(), GgufFileKind::kQ4_K_M));
  FORETOKEN_ASSERT_OK(weights);
  const WeightTensor& q = (*weights)->layers()[0].q;  // blocks of 256, in pairs
  const std::vector<float> all = Values(q);
  for (const int64_t begin : {0, 1, 100, 255, 256, 300, 4000}) {
    for (const size_t count : {1, 31, 32, 256, 257, 700}) {
      std::vector<float> part(count);
      q.CopyTo(begin, absl::MakeSpan(part));
      EXPECT_EQ(part, std::vector<float>(all.begin() + begin,
                                         all.begin() + begin + count));
    }
  }
}

// Whole pages of `tensor` that are mapped in this process; -1 if the system
// does not tell.
int PresentPages(const WeightTensor& tensor) {
  constexpr uint64_t kPresent = uint64_t{1} << 63;  // proc(5)
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t data = reinterpret_cast<uint64_t>(tensor.data);
  const uint64_t end = (data + static_cast<uint64_t>(tensor.bytes())) / page;
  // Not a stream: reads must be of whole entries.
  const int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  int present = 0;
  for (uint64_t i = (data + page - 1) / page; i < end && present >= 0; ++i) {
    uint64_t entry = 0;
    const bool read = pread(map, &entry, sizeof(entry),
                            static_cast<off_t>(i * sizeof(entry))) ==
                      static_cast<ssize_t>(sizeof(entry));
    present = read ? present + ((entry & kPresent) != 0 ? 1 : 0) : -1;
  }
  if (map >= 0) close(map);
  return present;
}

TEST(GgufModelTest, AReleasedTensorIsReadFromTheFileAgain) {
  TempDir dir;
  const auto weights =
      ModelWeights::Load(Export(dir, Config(), GgufFileKind::kFloat32));
  FORETOKEN_ASSERT_OK(weights);
  const WeightTensor& q = (*weights)->layers()[0].q;  // 256 KiB
  const std::vector<float> before = Values(q);
  if (PresentPages(q) < 0) GTEST_SKIP() << "/proc/self/pagemap is not readable";
  // Whole pages: the first and the last may be shared with neighbours.
  EXPECT_GE(PresentPages(q), 62);
  (*weights)->Release(q);
  EXPECT_EQ(PresentPages(q), 0);
  EXPECT_EQ(Values(q), before);
}

TEST(GgufModelTest, Q4KMMixesTypesAndFallsBackWhereRowsDoNotFit) {
  TempDir dir;
  std::vector<std::string> fallbacks;
  const auto files =
      GgufFiles::Open(Export(dir, Config(), GgufFileKind::kQ4_K_M, &fallbacks));
  FORETOKEN_ASSERT_OK(files);
  const auto type = [&](const char* name) {
    return GgufTensorTypeName(files->tensors.at(name).tensor.type);
  };
  EXPECT_EQ(type("output.weight"), "Q6_K");
  EXPECT_EQ(type("token_embd.weight"), "Q4_K");
  EXPECT_EQ(type("blk.0.attn_q.weight"), "Q4_K");
  EXPECT_EQ(type("blk.1.attn_v.weight"), "Q6_K");
  EXPECT_EQ(type("blk.0.ffn_norm.weight"), "F32");
  EXPECT_THAT(fallbacks, ElementsAre("blk.0.ffn_down.weight Q4_K Q5_0",
                                     "blk.1.ffn_down.weight Q6_K Q8_0"));
}

TEST(GgufModelTest, Llama3ScalingBecomesDivisorsAndComesBack) {
  TempDir dir;
  ModelConfig config = Config();
  config.rope_scaling = {RopeScaling::Type::kLlama3, 8, 1, 4, 64, {}};
  const auto weights =
      ModelWeights::Load(Export(dir, config, GgufFileKind::kQ8_0));
  FORETOKEN_ASSERT_OK(weights);
  const RopeScaling& rope = (*weights)->config().rope_scaling;
  EXPECT_EQ(rope.type, RopeScaling::Type::kNone);
  ASSERT_EQ(rope.divisors.size(), 32u);
  EXPECT_EQ(rope.divisors.front(), 1.0f);
  EXPECT_EQ(rope.divisors.back(), 8.0f);
  config.rope_scaling = {RopeScaling::Type::kLinear, 3, 1, 4, 0, {}};
  const auto linear =
      ModelWeights::Load(Export(dir, config, GgufFileKind::kQ8_0));
  FORETOKEN_ASSERT_OK(linear);
  EXPECT_EQ((*linear)->config().rope_scaling.type, RopeScaling::Type::kLinear);
  EXPECT_EQ((*linear)->config().rope_scaling.factor, 3.0f);
}

TEST(GgufModelTest, ThePoolingOfEmbeddingsIsRead) {
  TempDir dir;
  const std::string path = Export(dir, Config(), GgufFileKind::kQ8_0);
  const auto plain = ModelWeights::Load(path);
  FORETOKEN_ASSERT_OK(plain);
  EXPECT_EQ((*plain)->config().pooling, Pooling::kMean);
  // llama.cpp's numbers: none, mean, cls, last.
  const Pooling wanted[] = {Pooling::kNone, Pooling::kMean, Pooling::kNone,
                            Pooling::kLast};
  for (uint32_t type = 0; type < 4; ++type) {
    const auto weights = ModelWeights::Load(Rewrite(
        dir, path,
        {"",
         [=](GgufWriter& writer) { writer.Uint32("llama.pooling_type", type); },
         nullptr}));
    FORETOKEN_ASSERT_OK(weights);
    EXPECT_EQ((*weights)->config().pooling, wanted[type]) << type;
  }
}

TEST(GgufModelTest, WhatIsNotKnownIsRefusedByKeyAndValue) {
  struct Case {
    const char* key;
    std::function<void(GgufWriter&)> write;
    absl::StatusCode code;
    const char* want;
  };
  const auto number = [](const char* key, uint32_t value) {
    return [=](GgufWriter& writer) { writer.Uint32(key, value); };
  };
  const auto text = [](const char* key, const char* value) {
    return [=](GgufWriter& writer) { writer.String(key, value); };
  };
  const Case cases[] = {
      {"general.architecture", text("general.architecture", "gemma3"),
       kUnimplemented,
       "general.architecture is \"gemma3\", want llama, qwen2 or qwen3"},
      {"general.architecture", nullptr, kInvalid,
       "general.architecture is missing"},
      {"llama.block_count", nullptr, kInvalid, "llama.block_count is missing"},
      {"llama.block_count", number("llama.block_count", 4'000'000'000u),
       kInvalid, "llama.block_count is 4000000000, want an integer in 1..1024"},
      {"llama.attention.head_count_kv",
       number("llama.attention.head_count_kv", 3), kInvalid,
       "head_count_kv is 3, want a divisor of attention.head_count 4"},
      {"", number("llama.expert_count", 8), kUnimplemented,
       "llama.expert_count is 8, want 0"},
      {"", number("llama.attention.sliding_window", 64), kUnimplemented,
       "sliding_window is 64, want 0 or at least the context of 128"},
      {"", text("llama.rope.scaling.type", "yarn"), kUnimplemented,
       "llama.rope.scaling.type is \"yarn\", want none or linear"},
      {"llama.rope.dimension_count", number("llama.rope.dimension_count", 32),
       kUnimplemented, "dimension_count is 32, want 64 as the length of a key"},
      {"", number("llama.attention.scale", 1), kUnimplemented,
       "llama.attention.scale is 1, want no such key"},
      {"tokenizer.ggml.eos_token_id", number("tokenizer.ggml.eos_token_id", 40),
       kInvalid, "eos_token_id is 40, want an integer in 0..39"},
  };
  TempDir dir;
  const std::string path = Export(dir, Config(), GgufFileKind::kQ8_0);
  for (const Case& test : cases) {
    const std::string changed =
        Rewrite(dir, path, {test.key, test.write, nullptr});
    EXPECT_THAT(
        ModelWeights::Load(changed),
        StatusIs(test.code, AllOf(HasSubstr(changed), HasSubstr(test.want))));
  }
}

TEST(GgufModelTest, TensorsThatDoNotFitAreRefusedByName) {
  TempDir dir;
  const std::string path = Export(dir, Config(), GgufFileKind::kQ8_0);
  const auto without = [&](const char* missing) {
    return ModelWeights::Load(
        Rewrite(dir, path, {"", nullptr, [=](const std::string& name) {
                              return name != missing;
                            }}));
  };
  EXPECT_THAT(without("blk.1.ffn_up.weight"),
              StatusIs(kInvalid,
                       HasSubstr("tensor blk.1.ffn_up.weight is missing, want "
                                 "[96, 256]")));
  EXPECT_THAT(without("token_embd.weight"),
              StatusIs(kInvalid, HasSubstr("token_embd.weight is missing")));
  // Without its own output matrix the model is a tied one.
  FORETOKEN_EXPECT_OK(without("output.weight"));
  const auto with = [&](const char* name, uint32_t type,
                        std::vector<int64_t> shape) {
    return ModelWeights::Load(Rewrite(
        dir, path,
        {"", [=](GgufWriter& writer) { writer.Tensor(name, type, shape); },
         [=](const std::string& other) { return other != name; }}));
  };
  EXPECT_THAT(with("blk.0.attn_norm.weight", 0, {128, 2}),
              StatusIs(kInvalid, HasSubstr("has shape [128, 2], want [256]")));
  EXPECT_THAT(with("blk.2.attn_norm.weight", 0, {256}),
              StatusIs(kInvalid, HasSubstr("blk.2.attn_norm.weight is "
                                           "unexpected: this llama model")));
  EXPECT_THAT(with("blk.0.attn_norm.weight", 10, {256}),
              StatusIs(kUnimplemented,
                       HasSubstr("blk.0.attn_norm.weight has type Q2_K, want "
                                 "F32, F16, BF16, Q8_0")));
  EXPECT_THAT(with("rope_freqs.weight", 0, {31}),
              StatusIs(kInvalid, HasSubstr("rope_freqs.weight is F32 [31], "
                                           "want F32 [32]")));
  EXPECT_THAT(
      ModelWeights::Load(dir.Write("other.gguf", "GGML")),
      StatusIs(kInvalid, HasSubstr("not a GGUF file or model directory")));
}

TEST(GgufExportTest, EveryEndTokenHasAKeyBesideTheTokenizersOwn) {
  TempDir dir;
  ModelConfig config = Config();
  config.eos_tokens = {2, 7, 9};
  // The tokenizer names any of them, or none, or one of its own.
  for (const int eos : {-1, 2, 7, 9}) {
    GgufWriter writer;
    if (eos >= 0) writer.Uint32("tokenizer.ggml.eos_token_id", eos);
    const auto weights = ModelWeights::Load(
        Export(dir, config, GgufFileKind::kQ8_0, nullptr, std::move(writer)));
    FORETOKEN_ASSERT_OK(weights);
    EXPECT_THAT((*weights)->config().eos_tokens, ElementsAre(2, 7, 9)) << eos;
  }
  const auto weights = ModelWeights::Random(config, WeightType::kFloat32, 3);
  ThreadPool pool(1);
  const std::string out = dir.File("out.gguf");
  GgufWriter writer;
  writer.Uint32("tokenizer.ggml.eos_token_id", 11);
  EXPECT_THAT(ExportGguf(**weights, GgufFileKind::kQ8_0, out, pool,
                         std::move(writer), [](const GgufExportedTensor&) {}),
              StatusIs(kUnimplemented,
                       "end token 9: GGUF has keys for three, which "
                       "name 2, 7, 11"));
  EXPECT_FALSE(GgufFiles::Open(out).ok());
}

TEST(GgufExportTest, AWeightThatIsTooLargeForItsTypeIsRefused) {
  TempDir dir;
  const std::string path = Export(dir, Config(), GgufFileKind::kFloat32);
  const std::string bytes = *ReadFile(path);
  ThreadPool pool(2);
  const auto exported = [&](float value, GgufFileKind kind) {
    std::string changed = bytes;  // the last element of output.weight
    std::memcpy(&changed[bytes.size() - sizeof(value)], &value, sizeof(value));
    const auto weights = ModelWeights::Load(dir.Write("big.gguf", changed));
    return ExportGguf(**weights, kind, dir.File("out.gguf"), pool, GgufWriter(),
                      [](const GgufExportedTensor&) {});
  };
  const std::string refused =
      "tensor output.weight has an element that is too large for ";
  EXPECT_THAT(exported(65520.0f, GgufFileKind::kFloat16),
              StatusIs(kInvalid, refused + "F16"));
  EXPECT_THAT(exported(-1e9f, GgufFileKind::kQ8_0),
              StatusIs(kInvalid, refused + "Q8_0"));
  EXPECT_THAT(exported(1e9f, GgufFileKind::kQ4_K_M),
              StatusIs(kInvalid, refused + "Q6_K"));
  EXPECT_THAT(
      exported(std::numeric_limits<float>::max(), GgufFileKind::kBFloat16),
      StatusIs(kInvalid, refused + "BF16"));
  EXPECT_FALSE(GgufFiles::Open(dir.File("out.gguf")).ok());
  FORETOKEN_EXPECT_OK(exported(65504.0f, GgufFileKind::kFloat16));
  FORETOKEN_EXPECT_OK(exported(1e9f, GgufFileKind::kBFloat16));
  FORETOKEN_EXPECT_OK(exported(1e6f, GgufFileKind::kQ8_0));
}

TEST(GgufExportTest, AWeightThatIsNotFiniteIsRefusedAndNoFileIsLeft) {
  TempDir dir;
  const std::string path = Export(dir, Config(), GgufFileKind::kFloat32);
  std::string bytes = *ReadFile(path);
  const float nan = std::nanf("");
  std::memcpy(&bytes[bytes.size() - sizeof(nan)], &nan, sizeof(nan));
  const auto weights = ModelWeights::Load(dir.Write("nan.gguf", bytes));
  FORETOKEN_ASSERT_OK(weights);
  ThreadPool pool(1);
  const std::string out = dir.File("out.gguf");
  EXPECT_THAT(ExportGguf(**weights, GgufFileKind::kQ8_0, out, pool,
                         GgufWriter(), [](const GgufExportedTensor&) {}),
              StatusIs(kInvalid, HasSubstr("output.weight has an element that "
                                           "is not finite")));
  EXPECT_FALSE(GgufFiles::Open(out).ok());
}

}  // namespace
}  // namespace foretoken
