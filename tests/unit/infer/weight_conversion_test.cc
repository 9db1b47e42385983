#include "common/infer/weight_conversion.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/gguf/gguf_writer.h"
#include "common/infer/gguf_export.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr WeightConversion kEvery[] = {
    WeightConversion::kKeep, WeightConversion::kAuto, WeightConversion::kQ8_0,
    WeightConversion::kQ4_0};

WeightTensor Matrix(WeightType type, int64_t cols) {
  WeightTensor tensor;
  tensor.type = type;
  tensor.rows = 4;
  tensor.cols = cols;
  return tensor;
}

TEST(WeightConversionTest, EveryNameParsesAndOthersAreRefusedWithTheNames) {
  EXPECT_THAT(WeightConversionChoices(),
              ElementsAre("keep", "auto", "q8_0", "q4_0"));
  for (const WeightConversion conversion : kEvery) {
    const auto parsed = ParseWeightConversion(
        kWeightConversionNames[static_cast<int>(conversion)]);
    FORETOKEN_ASSERT_OK(parsed);
    EXPECT_EQ(*parsed, conversion);
  }
  EXPECT_THAT(
      ParseWeightConversion("q4_k").status(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("--draft-weights=q4_k: want keep|auto|q8_0|q4_0")));
}

TEST(WeightConversionTest, AutoKeepsWhatGainsNothing) {
  constexpr int64_t kLarge = kCachedWeightBytes + 1;
  const auto automatic = [](int64_t bytes, bool quantised) {
    return Resolve(WeightConversion::kAuto, bytes, quantised);
  };
  EXPECT_EQ(automatic(kLarge, true), WeightConversion::kQ4_0);
  EXPECT_EQ(automatic(kCachedWeightBytes, true), WeightConversion::kKeep);
  EXPECT_EQ(automatic(kLarge, false), WeightConversion::kKeep);
  for (const WeightConversion conversion : kEvery) {
    if (conversion == WeightConversion::kAuto) continue;
    EXPECT_EQ(Resolve(conversion, 1, false), conversion);
  }
}

TEST(WeightConversionTest, MatricesTakeTheTypeWhereTheirRowsAreWholeBlocks) {
  for (const WeightType type :
       {WeightType::kFloat32, WeightType::kBFloat16, WeightType::kQ8_0,
        WeightType::kQ4_0, WeightType::kQ4_K, WeightType::kQ6_K}) {
    const WeightTensor matrix = Matrix(type, 256);
    EXPECT_EQ(ConvertedType(WeightConversion::kKeep, matrix), type);
    EXPECT_EQ(ConvertedType(WeightConversion::kQ8_0, matrix),
              WeightType::kQ8_0);
    EXPECT_EQ(ConvertedType(WeightConversion::kQ4_0, matrix),
              WeightType::kQ4_0);
  }
  EXPECT_EQ(
      ConvertedType(WeightConversion::kQ4_0, Matrix(WeightType::kFloat16, 48)),
      WeightType::kFloat16);
}

TEST(WeightConversionTest, TheEmbeddingKeepsEightBits) {
  const auto type_of = [](WeightConversion conversion, WeightType type) {
    return ConvertedEmbeddingType(conversion, Matrix(type, 256));
  };
  EXPECT_EQ(type_of(WeightConversion::kKeep, WeightType::kFloat32),
            WeightType::kFloat32);
  EXPECT_EQ(type_of(WeightConversion::kQ4_0, WeightType::kBFloat16),
            WeightType::kQ8_0);
  EXPECT_EQ(type_of(WeightConversion::kQ4_0, WeightType::kQ6_K),
            WeightType::kQ6_K);
  EXPECT_EQ(type_of(WeightConversion::kQ8_0, WeightType::kQ6_K),
            WeightType::kQ8_0);
  EXPECT_EQ(ConvertedEmbeddingType(WeightConversion::kQ4_0,
                                   Matrix(WeightType::kFloat32, 48)),
            WeightType::kFloat32);
}

ModelConfig Config() {
  ModelConfig config;
  config.d_model = 256;
  config.n_layers = 2;
  config.n_heads = 4;
  config.n_kv_heads = 2;
  config.head_dim = 64;
  config.d_ff = 96;
  config.vocab_size = 200;
  config.max_positions = 64;
  config.eos_tokens = {2};
  return config;
}

// Every matrix of the layers, by its name.
std::vector<std::pair<std::string, WeightTensor>> Matrices(
    const ModelWeights& weights) {
  std::vector<std::pair<std::string, WeightTensor>> matrices;
  int index = 0;
  for (const LayerWeights& layer : weights.layers()) {
    const std::pair<const char*, WeightTensor> parts[] = {
        {"q", layer.q},      {"k", layer.k},       {"v", layer.v},
        {"o", layer.o},      {"gate", layer.gate}, {"up", layer.up},
        {"down", layer.down}};
    for (const auto& [name, tensor] : parts) {
      matrices.emplace_back(absl::StrCat(index, " ", name), tensor);
    }
    ++index;
  }
  return matrices;
}

// The file has the rows of q and k in another order, which StoredRow undoes.
TEST(WeightConversionTest, TheBytesAreThoseOfAFileThatQuantizeWrites) {
  const auto source = ModelWeights::Random(Config(), WeightType::kBFloat16, 7);
  FORETOKEN_ASSERT_OK(source);
  const std::pair<GgufFileKind, WeightConversion> kinds[] = {
      {GgufFileKind::kQ8_0, WeightConversion::kQ8_0},
      {GgufFileKind::kQ4_0, WeightConversion::kQ4_0}};
  for (const auto& [kind, conversion] : kinds) {
    TempDir dir;
    const std::string path = dir.File("model.gguf");
    ThreadPool pool(2);
    FORETOKEN_ASSERT_OK(ExportGguf(**source, kind, path, pool, GgufWriter(),
                                   [](const GgufExportedTensor&) {}));
    const auto file = ModelWeights::Load(path);
    FORETOKEN_ASSERT_OK(file);
    const auto stored = Matrices(**file);
    const auto matrices = Matrices(**source);
    ASSERT_EQ(stored.size(), matrices.size());
    for (size_t i = 0; i < matrices.size(); ++i) {
      const auto& [name, matrix] = matrices[i];
      const WeightType type = ConvertedType(conversion, matrix);
      ASSERT_EQ(type, stored[i].second.type) << name;
      HugeBuffer memory;
      const auto converted = ConvertRows(name, matrix, type, {}, pool, memory);
      FORETOKEN_ASSERT_OK(converted);
      const int64_t row_bytes = WeightTypeBytes(type, matrix.cols);
      for (int64_t row = 0; row < matrix.rows; ++row) {
        ASSERT_EQ(std::memcmp(converted->StoredRow(row),
                              stored[i].second.StoredRow(row), row_bytes),
                  0)
            << name << ", row " << row;
      }
    }
  }
}

TEST(WeightConversionTest, ListedRowsAreThoseOfTheWholeMatrix) {
  const auto source = ModelWeights::Random(Config(), WeightType::kFloat32, 7);
  FORETOKEN_ASSERT_OK(source);
  const WeightTensor& matrix = (*source)->output();
  ThreadPool pool(2);
  HugeBuffer whole_memory, part_memory;
  const auto whole =
      ConvertRows("head", matrix, WeightType::kQ4_0, {}, pool, whole_memory);
  const std::vector<TokenId> rows = {0, 3, 199};
  const auto part =
      ConvertRows("head", matrix, WeightType::kQ4_0, rows, pool, part_memory);
  FORETOKEN_ASSERT_OK(whole);
  FORETOKEN_ASSERT_OK(part);
  ASSERT_EQ(part->rows, 3);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(std::memcmp(part->StoredRow(static_cast<int64_t>(i)),
                          whole->StoredRow(rows[i]),
                          WeightTypeBytes(WeightType::kQ4_0, matrix.cols)),
              0);
  }
}

TEST(WeightConversionTest, WhatTheTypeCannotHoldIsRefusedByName) {
  std::vector<float> values(64, 0.5f);
  WeightTensor matrix = Matrix(WeightType::kFloat32, 32);
  matrix.rows = 2;
  matrix.data = reinterpret_cast<const uint8_t*>(values.data());
  ThreadPool pool(1);
  HugeBuffer memory;
  const auto convert = [&](float value) {
    values[40] = value;
    return ConvertRows("q_proj", matrix, WeightType::kQ8_0, {}, pool, memory)
        .status();
  };
  FORETOKEN_EXPECT_OK(convert(3.0f));
  for (const float value :
       {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    EXPECT_THAT(convert(value),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("tensor q_proj has an element that is not "
                                   "finite")));
  }
  EXPECT_THAT(convert(1e30f),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("q_proj has an element that is too large for "
                                 "Q8_0")));
}

}  // namespace
}  // namespace foretoken
