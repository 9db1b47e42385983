#include "common/infer/weight_conversion.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/infer/block_encoding.h"

namespace foretoken {
namespace {

bool HasWholeBlocks(WeightType type, int64_t cols) {
  return cols % WeightTypeFormat(type).block == 0;
}

// Whether `type` takes more bytes than `other` for the same elements. Both have
// blocks of up to 256.
bool IsLarger(WeightType type, WeightType other) {
  return WeightTypeBytes(type, 256) > WeightTypeBytes(other, 256);
}

}  // namespace

std::vector<std::string> WeightConversionChoices() {
  return {std::begin(kWeightConversionNames), std::end(kWeightConversionNames)};
}

absl::StatusOr<WeightConversion> ParseWeightConversion(absl::string_view text) {
  const auto name = std::find(std::begin(kWeightConversionNames),
                              std::end(kWeightConversionNames), text);
  if (name != std::end(kWeightConversionNames)) {
    return static_cast<WeightConversion>(name - kWeightConversionNames);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--draft-weights=", text, ": want ",
                   absl::StrJoin(kWeightConversionNames, "|")));
}

WeightConversion Resolve(WeightConversion conversion, int64_t bytes,
                         bool quantised) {
  if (conversion != WeightConversion::kAuto) return conversion;
  return quantised && bytes > kCachedWeightBytes ? WeightConversion::kQ4_0
                                                 : WeightConversion::kKeep;
}

WeightType ConvertedType(WeightConversion conversion,
                         const WeightTensor& matrix) {
  if (conversion == WeightConversion::kKeep) return matrix.type;
  const WeightType type = conversion == WeightConversion::kQ8_0
                              ? WeightType::kQ8_0
                              : WeightType::kQ4_0;
  return HasWholeBlocks(type, matrix.cols) ? type : matrix.type;
}

WeightType ConvertedEmbeddingType(WeightConversion conversion,
                                  const WeightTensor& embedding) {
  constexpr WeightType kType = WeightType::kQ8_0;
  const bool converts = conversion == WeightConversion::kQ8_0 ||
                        (conversion != WeightConversion::kKeep &&
                         IsLarger(embedding.type, kType));
  return converts && HasWholeBlocks(kType, embedding.cols) ? kType
                                                           : embedding.type;
}

absl::Status EncodeRows(
    absl::string_view name, WeightType type, int64_t first, int64_t count,
    int64_t cols, ThreadPool& pool,
    absl::FunctionRef<void(int64_t, absl::Span<float>)> read, uint8_t* out) {
  const int64_t row_bytes = WeightTypeBytes(type, cols);
  std::vector<std::vector<float>> values(pool.threads());
  std::atomic<bool> finite = true;
  std::atomic<bool> fits = true;
  pool.ParallelForThreads(count, [&](int64_t row, int thread) {
    std::vector<float>& in = values[thread];
    in.resize(cols);
    read(first + row, absl::MakeSpan(in));
    if (!std::all_of(in.begin(), in.end(),
                     [](float value) { return std::isfinite(value); })) {
      finite = false;
      return;
    }
    if (!EncodeWeights(type, in, out + row * row_bytes)) fits = false;
  });
  if (!finite) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", name, " has an element that is not finite"));
  }
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", name, " has an element that is too large for ",
                     WeightTypeName(type)));
  }
  return absl::OkStatus();
}

absl::StatusOr<WeightTensor> ConvertRows(absl::string_view name,
                                         const WeightTensor& matrix,
                                         WeightType type,
                                         absl::Span<const TokenId> rows,
                                         ThreadPool& pool, HugeBuffer& memory) {
  WeightTensor converted;
  converted.type = type;
  converted.rows =
      rows.empty() ? matrix.rows : static_cast<int64_t>(rows.size());
  converted.cols = matrix.cols;
  FORETOKEN_ASSIGN_OR_RETURN(
      memory, HugeBuffer::Allocate(converted.bytes(), HugeBuffer::Use::kWhole));
  converted.data = memory.data();
  FORETOKEN_RETURN_IF_ERROR(EncodeRows(
      name, type, 0, converted.rows, matrix.cols, pool,
      [&](int64_t row, absl::Span<float> out) {
        matrix.CopyTo((rows.empty() ? row : rows[row]) * matrix.cols, out);
      },
      memory.data()));
  return converted;
}

}  // namespace foretoken
