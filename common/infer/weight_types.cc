#include "common/infer/weight_types.h"

#include "common/infer/block_quants.h"

namespace foretoken {

std::optional<WeightType> WeightTypeFromGguf(uint32_t number) {
  constexpr WeightType kTypes[] = {
      WeightType::kFloat32, WeightType::kFloat16, WeightType::kQ4_0,
      WeightType::kQ4_1,    WeightType::kQ5_0,    WeightType::kQ5_1,
      WeightType::kQ8_0,    WeightType::kQ4_K,    WeightType::kQ5_K,
      WeightType::kQ6_K,    WeightType::kBFloat16};
  for (const WeightType type : kTypes) {
    if (static_cast<uint32_t>(type) == number) return type;
  }
  return std::nullopt;
}

uint16_t Float16FromFloat(float value) {
  const uint32_t bits = BitsFromFloat(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;  // NaN
  // 65520 is the first value that rounds past the largest half, 65504.
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;
  if (magnitude < 0x38800000u) {
    // Below 2^-14 a half is a multiple of 2^-24: adding 0.5, whose last
    // fraction bit is 2^-24, makes the hardware round to just that.
    const float rounded = FloatFromBits(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (BitsFromFloat(rounded) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0x0fffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

void ConvertToFloat32(WeightType type, const uint8_t* data,
                      absl::Span<float> out) {
  // Plain loops over unaligned loads: compiled with vectorisation on (see
  // CMakeLists.txt), which is what makes them fast.
  float* const to = out.data();
  const size_t count = out.size();
  switch (type) {
    case WeightType::kFloat32:
      if (count > 0) std::memcpy(to, data, count * sizeof(float));
      return;
    case WeightType::kBFloat16:
      for (size_t i = 0; i < count; ++i) {
        uint16_t bits;
        std::memcpy(&bits, data + 2 * i, sizeof(bits));
        to[i] = FloatFromBFloat16(bits);
      }
      return;
    case WeightType::kFloat16:
      for (size_t i = 0; i < count; ++i) {
        uint16_t bits;
        std::memcpy(&bits, data + 2 * i, sizeof(bits));
        to[i] = FloatFromFloat16(bits);
      }
      return;
    default:
      DequantiseBlocks(type, data, out);
      return;
  }
}

}  // namespace foretoken
