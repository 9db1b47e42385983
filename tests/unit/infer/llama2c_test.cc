#include "common/infer/llama2c.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/infer/model_weights.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_data.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

struct Header {
  int32_t dim = 8;
  int32_t hidden_dim = 6;
  int32_t n_layers = 2;
  int32_t n_heads = 2;
  int32_t n_kv_heads = 1;
  int32_t vocab_size = 5;  // negative: output matrix apart
  int32_t max_seq_len = 16;
};

// The header and 1, 2, 3, ... as its floats.
std::vector<uint8_t> Checkpoint(const Header& header) {
  const int vocab = std::abs(header.vocab_size);
  const int head_dim = header.dim / header.n_heads;
  const int kv_dim = header.n_kv_heads * head_dim;
  const int layer = 2 * header.dim + 2 * header.dim * header.dim +
                    2 * kv_dim * header.dim +
                    3 * header.hidden_dim * header.dim;
  const int floats = vocab * header.dim * (header.vocab_size < 0 ? 2 : 1) +
                     header.n_layers * layer + header.dim +
                     header.max_seq_len * head_dim;
  std::vector<uint8_t> bytes(sizeof(header) + 4 * floats);
  std::memcpy(bytes.data(), &header, sizeof(header));
  for (int i = 0; i < floats; ++i) {
    const float value = static_cast<float>(i + 1);
    std::memcpy(bytes.data() + sizeof(header) + 4 * i, &value, 4);
  }
  return bytes;
}

// The model that the checkpoint becomes, by way of the disk.
absl::StatusOr<std::unique_ptr<ModelWeights>> Converted(const TempDir& dir,
                                                        const Header& header) {
  FORETOKEN_ASSIGN_OR_RETURN(const Llama2cFiles files,
                             ConvertLlama2c(Checkpoint(header), "m.bin"));
  FORETOKEN_RETURN_IF_ERROR(WriteLlama2cFiles(files, dir.path()));
  return ModelWeights::Load(dir.path());
}

std::vector<float> Row(const WeightTensor& tensor, int64_t row) {
  std::vector<float> values(static_cast<size_t>(tensor.cols));
  tensor.CopyTo(row * tensor.cols, absl::MakeSpan(values));
  return values;
}

// Eight numbers in a row from `first`.
std::vector<float> From(float first) {
  std::vector<float> values(8);
  for (float& value : values) value = first++;
  return values;
}

TEST(ConvertLlama2cTest, EveryArrayGoesToItsTensor) {
  TempDir dir;
  const auto weights = Converted(dir, Header());
  FORETOKEN_ASSERT_OK(weights);
  const ModelConfig& config = (*weights)->config();
  EXPECT_EQ(config.d_model, 8);
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_EQ(config.max_positions, 16);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_EQ(config.bos_token, 1);
  EXPECT_THAT(config.eos_tokens, ElementsAre(1, 2));
  EXPECT_FLOAT_EQ(config.rms_norm_eps, 1e-5f);
  EXPECT_EQ(config.rope_theta, 10000.0f);

  // Floats before each array: embedding 40, attention norms 16, wq 2 x 64,
  // wk 2 x 32, wv 2 x 32, wo 2 x 64, ffn norms 16, w1, w2, w3 2 x 48 each.
  const LayerWeights& second = (*weights)->layers()[1];
  EXPECT_EQ(Row((*weights)->embedding(), 1), From(9));
  EXPECT_EQ(Row(second.attention_norm, 0), From(40 + 8 + 1));
  EXPECT_EQ(Row(second.v, 0), From(40 + 16 + 128 + 64 + 32 + 1));
  EXPECT_EQ(Row(second.o, 0), From(40 + 16 + 128 + 128 + 64 + 1));
  EXPECT_EQ(Row(second.ffn_norm, 0), From(40 + 16 + 384 + 8 + 1));
  EXPECT_EQ(Row(second.gate, 0), From(456 + 48 + 1));
  EXPECT_EQ(Row(second.down, 0)[0], 456 + 96 + 48 + 1);
  EXPECT_EQ(Row(second.up, 0), From(456 + 192 + 48 + 1));
  EXPECT_EQ(Row((*weights)->final_norm(), 0), From(456 + 288 + 1));
}

TEST(ConvertLlama2cTest, RotaryPairsBecomeHalves) {
  TempDir dir;
  const auto weights = Converted(dir, Header());
  FORETOKEN_ASSERT_OK(weights);
  // Each head has four rows a0 b0 a1 b1, and wants a0 a1 b0 b1.
  const float q = 40 + 16 + 1;
  const LayerWeights& layer = (*weights)->layers()[0];
  const int from_row[] = {0, 2, 1, 3, 4, 6, 5, 7};
  for (int row = 0; row < 8; ++row) {
    EXPECT_EQ(Row(layer.q, row), From(q + 8.0f * from_row[row])) << row;
  }
  const float k = 40 + 16 + 128 + 1;
  for (int row = 0; row < 4; ++row) {
    EXPECT_EQ(Row(layer.k, row), From(k + 8.0f * from_row[row])) << row;
  }
}

TEST(ConvertLlama2cTest, ANegativeVocabularyMeansAnOutputMatrixApart) {
  TempDir dir;
  Header header;
  header.vocab_size = -5;
  const auto weights = Converted(dir, header);
  FORETOKEN_ASSERT_OK(weights);
  EXPECT_FALSE((*weights)->config().tied_embeddings);
  EXPECT_EQ((*weights)->config().vocab_size, 5);
  // After the final norm and the rotary tables, 16 x 4 floats.
  EXPECT_EQ(Row((*weights)->output(), 0), From(456 + 288 + 8 + 64 + 1));
}

TEST(ConvertLlama2cTest, RefusesBadHeadersByField) {
  struct Case {
    int32_t Header::*field;
    int32_t value;
    const char* message;
  };
  const Case kCases[] = {
      {&Header::dim, 0, "m.bin: dim is 0, want 1..65536"},
      {&Header::dim, -8, "m.bin: dim is -8, want 1..65536"},
      {&Header::dim, 10,
       "m.bin: dim is 10, want a multiple of twice n_heads 2"},
      {&Header::hidden_dim, 1 << 30,
       "m.bin: hidden_dim is 1073741824, want 1..1048576"},
      {&Header::n_layers, 0, "m.bin: n_layers is 0, want 1..1024"},
      {&Header::n_heads, 0, "m.bin: n_heads is 0, want 1..1024"},
      {&Header::n_kv_heads, 3,
       "m.bin: n_kv_heads is 3, want a divisor of n_heads 2"},
      {&Header::vocab_size, 2, "m.bin: vocab_size is 2, want 3..4194304"},
      {&Header::vocab_size, INT32_MIN,
       "m.bin: vocab_size is 2147483648, want 3..4194304"},
      {&Header::max_seq_len, 0, "m.bin: max_seq_len is 0, want 1..16777216"},
  };
  for (const Case& test : kCases) {
    Header header;
    header.*test.field = test.value;
    std::vector<uint8_t> bytes(4096);
    std::memcpy(bytes.data(), &header, sizeof(header));
    EXPECT_THAT(ConvertLlama2c(bytes, "m.bin"),
                StatusIs(kInvalid, test.message));
  }
}

TEST(ConvertLlama2cTest, RefusesAnyOtherSize) {
  const std::vector<uint8_t> whole = Checkpoint(Header());
  FORETOKEN_ASSERT_OK(ConvertLlama2c(whole, "m.bin"));
  for (size_t length = 0; length < whole.size(); length += 61) {
    const std::vector<uint8_t> part(whole.begin(), whole.begin() + length);
    EXPECT_THAT(
        ConvertLlama2c(part, "m.bin"),
        StatusIs(kInvalid, HasSubstr(absl::StrCat("m.bin: is ", length,
                                                  " bytes long, want "))));
  }
  TempDir dir;
  const std::string path = dir.Write(
      "m.bin", std::string(whole.begin(), whole.end()) + std::string(4, '\0'));
  EXPECT_THAT(ConvertLlama2cFile(path),
              StatusIs(kInvalid, absl::StrCat(path, ": is ", whole.size() + 4,
                                              " bytes long, want ",
                                              whole.size(), " by its header")));
}

TEST(ConvertLlama2cTest, RefusesTheVersionedFormatByName) {
  std::vector<uint8_t> bytes(256);
  const uint32_t header[2] = {0x616b3432, 1};
  std::memcpy(bytes.data(), header, sizeof(header));
  EXPECT_THAT(ConvertLlama2c(bytes, "m.bin"),
              StatusIs(absl::StatusCode::kUnimplemented,
                       "m.bin: is a versioned llama2.c checkpoint (version 1), "
                       "want the legacy format"));
}

TEST(ConvertLlama2cTest, Stories260KConverts) {
  FORETOKEN_DATA_OR_SKIP(path, "models/tinyllamas_tok512/stories260K.bin");
  TempDir dir;
  const auto files = ConvertLlama2cFile(path);
  FORETOKEN_ASSERT_OK(files);
  FORETOKEN_ASSERT_OK(WriteLlama2cFiles(*files, dir.path()));
  const auto weights = ModelWeights::Load(dir.path());
  FORETOKEN_ASSERT_OK(weights);
  EXPECT_EQ((*weights)->config().d_model, 64);
  EXPECT_EQ((*weights)->config().n_kv_heads, 4);
  EXPECT_EQ((*weights)->config().vocab_size, 512);
}

}  // namespace
}  // namespace foretoken
