// The number formats of stored weights, and conversions between them.
//
// Every bfloat16 and half value is a float value, so widening is exact, NaN
// payloads and subnormals included. Narrowing rounds to nearest, ties to even.
// Quantised blocks are decoded to the floats that ggml's reference gives
// (block_quants.h). Pure functions; thread-safe.
#ifndef FORETOKEN_COMMON_INFER_WEIGHT_TYPES_H_
#define FORETOKEN_COMMON_INFER_WEIGHT_TYPES_H_

#include <cstdint>
#include <cstring>
#include <optional>

#include "absl/types/span.h"
#include "common/gguf/tensor_types.h"

namespace foretoken {

// The values are GGUF's type numbers.
enum class WeightType : uint8_t {
  kFloat32 = 0,
  kFloat16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBFloat16 = 30,
};

// The type with that number in a GGUF file, if it is supported.
std::optional<WeightType> WeightTypeFromGguf(uint32_t number);

// Name and block size. A block has one element except in the Q types.
inline const GgufTensorType& WeightTypeFormat(WeightType type) {
  return *FindGgufTensorType(static_cast<uint32_t>(type));
}

// As safetensors and GGUF spell it: "F32", "F16", "BF16", "Q4_K".
inline const char* WeightTypeName(WeightType type) {
  return WeightTypeFormat(type).name;
}

// Bytes of `elements` elements, which must be whole blocks.
inline int64_t WeightTypeBytes(WeightType type, int64_t elements) {
  const GgufTensorType& format = WeightTypeFormat(type);
  return elements / format.block * format.block_bytes;
}

inline float FloatFromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline uint32_t BitsFromFloat(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float FloatFromBFloat16(uint16_t bits) {
  return FloatFromBits(static_cast<uint32_t>(bits) << 16);
}

// NaN stays NaN (made quiet), overflow becomes infinity.
inline uint16_t BFloat16FromFloat(float value) {
  const uint32_t bits = BitsFromFloat(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<uint16_t>((bits >> 16) | 0x0040u);
  }
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float FloatFromFloat16(uint16_t half) {
  // The half's exponent and fraction, read as a float, are the value divided
  // by 2^112 (the two exponent biases are 127 and 15); multiplying is exact,
  // subnormals included. Infinity and NaN need the float's full exponent.
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fffu) << 13;
  const uint32_t scaled =
      BitsFromFloat(FloatFromBits(magnitude) * FloatFromBits(0x77800000u));
  const uint32_t special = (half & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
  return FloatFromBits(scaled | special |
                       (static_cast<uint32_t>(half & 0x8000u) << 16));
}

uint16_t Float16FromFloat(float value);

// Widens out.size() elements, whole blocks, that start at `data`, which need
// not be aligned.
void ConvertToFloat32(WeightType type, const uint8_t* data,
                      absl::Span<float> out);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_WEIGHT_TYPES_H_
