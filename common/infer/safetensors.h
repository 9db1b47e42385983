// The safetensors container: an 8-byte little-endian header length, a JSON
// header that gives each tensor's type, shape and byte range, and the bytes.
//
// The parser takes bytes, not files, and trusts none of them: sizes are
// bounded, products are checked for overflow, and the byte ranges must tile
// the data section exactly, without overlap, gap or rest. Tensor data need not
// be aligned.
//
// Format: github.com/huggingface/safetensors, "Format".
// Pure functions; thread-safe.
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

// Headers and counts above these are refused.
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = uint64_t{16} << 20;
inline constexpr size_t kMaxSafetensorsTensors = 100'000;
inline constexpr size_t kMaxSafetensorsRank = 8;

// The tensors in the order of their data. InvalidArgument names `file`, the
// tensor, what was found and what was wanted.
absl::StatusOr<std::vector<SafetensorsTensor>> ParseSafetensors(
    absl::Span<const uint8_t> bytes, const std::string& file);

// One tensor to write; data holds exactly the bytes of the shape.
struct SafetensorsSource {
  std::string name;
  WeightType type = WeightType::kFloat32;
  std::vector<int64_t> shape;
  absl::Span<const uint8_t> data;
};

// The file's bytes, tensors in the order given, data 8-byte aligned.
std::string SerializeSafetensors(absl::Span<const SafetensorsSource> tensors);

// "[4, 8]"; "[]" for a scalar.
std::string ShapeText(absl::Span<const int64_t> shape);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_SAFETENSORS_H_
