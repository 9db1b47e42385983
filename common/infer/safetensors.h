// The safetensors container: an 8-byte little-endian header length, a JSON
// header with each tensor's type, shape and byte range, and the data.
//
// The parser takes bytes, not files, and trusts none of them: sizes are
// bounded, products are checked for overflow, and the byte ranges must tile the
// data section exactly, without overlap, gap or remainder. Tensor data may be
// unaligned.
//
// Format: github.com/huggingface/safetensors, "Format". Pure functions;
// thread-safe.
#ifndef FORETOKEN_COMMON_INFER_SAFETENSORS_H_
#define FORETOKEN_COMMON_INFER_SAFETENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/infer/weight_types.h"

namespace foretoken {

struct SafetensorsTensor {
  std::string name;
  std::string dtype;               // "F32", "BF16", "I64", ...
  std::vector<int64_t> shape;      // empty for a scalar
  absl::Span<const uint8_t> data;  // borrows the bytes parsed
};

// Limits; larger headers and counts are refused.
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = uint64_t{16} << 20;
inline constexpr size_t kMaxSafetensorsTensors = 100'000;
inline constexpr size_t kMaxSafetensorsRank = 8;

// Returns the tensors in the order of their data. InvalidArgument names `file`,
// the tensor, what was found and what is wanted.
absl::StatusOr<std::vector<SafetensorsTensor>> ParseSafetensors(
    absl::Span<const uint8_t> bytes, const std::string& file);

// A tensor to write; `data` has exactly the size of the shape.
struct SafetensorsSource {
  std::string name;
  WeightType type = WeightType::kFloat32;
  std::vector<int64_t> shape;
  absl::Span<const uint8_t> data;
};

// Returns the bytes of a file, tensors in the given order, data 8-byte aligned.
std::string SerializeSafetensors(absl::Span<const SafetensorsSource> tensors);

// "[4, 8]"; "[]" for a scalar.
std::string ShapeText(absl::Span<const int64_t> shape);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_SAFETENSORS_H_
