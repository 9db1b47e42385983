#include "common/infer/block_quants.h"

#include <cstring>

#include "common/base/check.h"
#include "common/infer/block_layouts.h"

namespace foretoken {
namespace {

// --- decoding ---------------------------------------------------------------

void Decode(const BlockQ4_0& block, float* out) {
  const float d = block.d.Get();
  for (int i = 0; i < kBlock / 2; ++i) {
    out[i] = static_cast<float>((block.qs[i] & 0xf) - 8) * d;
    out[i + kBlock / 2] = static_cast<float>((block.qs[i] >> 4) - 8) * d;
  }
}

void Decode(const BlockQ4_1& block, float* out) {
  const float d = block.d.Get();
  const float m = block.m.Get();
  for (int i = 0; i < kBlock / 2; ++i) {
    out[i] = static_cast<float>(block.qs[i] & 0xf) * d + m;
    out[i + kBlock / 2] = static_cast<float>(block.qs[i] >> 4) * d + m;
  }
}

// The five bits of elements i and i + 16.
template <typename Block>
// Bit i of the 32 is the fifth bit of element i.
void FiveBits(const Block& block, int i, int& low, int& high) {
  uint32_t fifth;
  std::memcpy(&fifth, block.qh, sizeof(fifth));
  low = (block.qs[i] & 0xf) | static_cast<int>((fifth >> i & 1) << 4);
  high = (block.qs[i] >> 4) | static_cast<int>((fifth >> (i + 16) & 1) << 4);
}

void Decode(const BlockQ5_0& block, float* out) {
  const float d = block.d.Get();
  for (int i = 0; i < kBlock / 2; ++i) {
    int low, high;
    FiveBits(block, i, low, high);
    out[i] = static_cast<float>(low - 16) * d;
    out[i + kBlock / 2] = static_cast<float>(high - 16) * d;
  }
}

void Decode(const BlockQ5_1& block, float* out) {
  const float d = block.d.Get();
  const float m = block.m.Get();
  for (int i = 0; i < kBlock / 2; ++i) {
    int low, high;
    FiveBits(block, i, low, high);
    out[i] = static_cast<float>(low) * d + m;
    out[i + kBlock / 2] = static_cast<float>(high) * d + m;
  }
}

void Decode(const BlockQ8_0& block, float* out) {
  const float d = block.d.Get();
  for (int i = 0; i < kBlock; ++i) {
    out[i] = static_cast<float>(block.qs[i]) * d;
  }
}

// Scale and minimum of sub-block `i` of eight. The first four are six bits of
// a byte each; the others have their low four bits in the last four bytes and
// their high two on top of the first eight.
void SubScale(const uint8_t* scales, int i, int& scale, int& min) {
  if (i < 4) {
    scale = scales[i] & 63;
    min = scales[i + 4] & 63;
  } else {
    scale = (scales[i + 4] & 0xf) | (scales[i - 4] >> 6 << 4);
    min = (scales[i + 4] >> 4) | (scales[i] >> 6 << 4);
  }
}

// Q4_K and Q5_K: sub-block `i` takes the low nibbles of 32 bytes if it is even,
// the high ones of the same bytes if it is odd. `fifth(i, j)` is 0 or 16.
template <typename Block, typename Fifth>
void DecodeSubBlocks(const Block& block, float* out, Fifth fifth) {
  const float d = block.d.Get();
  const float dmin = block.dmin.Get();
  for (int i = 0; i < kSuperBlock / kBlock; ++i) {
    int scale, min;
    SubScale(block.scales, i, scale, min);
    const float sub_d = d * static_cast<float>(scale);
    const float sub_min = dmin * static_cast<float>(min);
    const uint8_t* qs = block.qs + i / 2 * kBlock;
    for (int j = 0; j < kBlock; ++j) {
      const int nibble = i % 2 == 0 ? qs[j] & 0xf : qs[j] >> 4;
      *out++ = sub_d * static_cast<float>(nibble + fifth(i, j)) - sub_min;
    }
  }
}

void Decode(const BlockQ4K& block, float* out) {
  DecodeSubBlocks(block, out, [](int, int) { return 0; });
}

void Decode(const BlockQ5K& block, float* out) {
  DecodeSubBlocks(block, out, [&block](int i, int j) {
    return (block.qh[j] >> i & 1) << 4;
  });
}

void Decode(const BlockQ6K& block, float* out) {
  const float d = block.d.Get();
  // Halves of 128 elements; a byte of qh has the high bits of four elements
  // that lie 32 apart.
  for (int half = 0; half < 2; ++half) {
    const uint8_t* ql = block.ql + 64 * half;
    const uint8_t* qh = block.qh + 32 * half;
    const int8_t* scales = block.scales + 8 * half;
    for (int quarter = 0; quarter < 4; ++quarter) {
      for (int j = 0; j < kBlock; ++j) {
        const uint8_t low = ql[j + 32 * (quarter % 2)];
        const int nibble = quarter < 2 ? low & 0xf : low >> 4;
        const int high = qh[j] >> (2 * quarter) & 3;
        const float scale =
            d * static_cast<float>(scales[2 * quarter + j / 16]);
        *out++ = scale * static_cast<float>((nibble | high << 4) - 32);
      }
    }
  }
}

template <typename Block>
void DecodeAll(int64_t elements, const uint8_t* data, absl::Span<float> out) {
  for (size_t i = 0; i < out.size(); i += static_cast<size_t>(elements)) {
    Block block;
    std::memcpy(&block, data, sizeof(block));
    Decode(block, out.data() + i);
    data += sizeof(block);
  }
}

// --- unpacking --------------------------------------------------------------

void UnpackNibbles(const uint8_t* qs, QuantPart& out) {
  for (int i = 0; i < kBlock / 2; ++i) {
    out.quants[i] = qs[i] & 0xf;
    out.quants[i + kBlock / 2] = qs[i] >> 4;
  }
}

template <typename Block>
void UnpackFiveBits(const Block& block, QuantPart& out) {
  for (int i = 0; i < kBlock / 2; ++i) {
    int low, high;
    FiveBits(block, i, low, high);
    out.quants[i] = static_cast<uint8_t>(low);
    out.quants[i + kBlock / 2] = static_cast<uint8_t>(high);
  }
}

void Unpack(const BlockQ8_0& block, int, QuantPart& out) {
  for (int i = 0; i < kBlock; ++i) {
    // Stored signed; with 128 added all types unpack to unsigned quants.
    out.quants[i] = static_cast<uint8_t>(block.qs[i] + 128);
  }
}
void Unpack(const BlockQ4_0& block, int, QuantPart& out) {
  UnpackNibbles(block.qs, out);
}
void Unpack(const BlockQ4_1& block, int, QuantPart& out) {
  out.block_min = block.m.Bits();
  UnpackNibbles(block.qs, out);
}
void Unpack(const BlockQ5_0& block, int, QuantPart& out) {
  UnpackFiveBits(block, out);
}
void Unpack(const BlockQ5_1& block, int, QuantPart& out) {
  out.block_min = block.m.Bits();
  UnpackFiveBits(block, out);
}

// As DecodeSubBlocks.
template <typename Block>
void UnpackSubBlock(const Block& block, int index, QuantPart& out) {
  int scale, min;
  SubScale(block.scales, index, scale, min);
  out.block_min = block.dmin.Bits();
  out.scales[0] = out.scales[1] = static_cast<int8_t>(scale);
  out.min = static_cast<uint8_t>(min);
  const uint8_t* qs = block.qs + index / 2 * kBlock;
  for (int i = 0; i < kBlock; ++i) {
    out.quants[i] = index % 2 == 0 ? qs[i] & 0xf : qs[i] >> 4;
  }
}
void Unpack(const BlockQ4K& block, int index, QuantPart& out) {
  UnpackSubBlock(block, index, out);
}
void Unpack(const BlockQ5K& block, int index, QuantPart& out) {
  UnpackSubBlock(block, index, out);
  for (int i = 0; i < kBlock; ++i) {
    out.quants[i] |= static_cast<uint8_t>((block.qh[i] >> index & 1) << 4);
  }
}
void Unpack(const BlockQ6K& block, int index, QuantPart& out) {
  const int quarter = index % 4;
  const uint8_t* ql = block.ql + 64 * (index / 4) + 32 * (quarter % 2);
  const uint8_t* qh = block.qh + 32 * (index / 4);
  for (int i = 0; i < kBlock; ++i) {
    const int nibble = quarter < 2 ? ql[i] & 0xf : ql[i] >> 4;
    const int high = qh[i] >> (2 * quarter) & 3;
    out.quants[i] = static_cast<uint8_t>(nibble | high << 4);
  }
  out.scales[0] = block.scales[2 * index];
  out.scales[1] = block.scales[2 * index + 1];
}

template <typename Block>
QuantPart UnpackPart(int64_t parts, const uint8_t* data, int64_t part) {
  Block block;
  std::memcpy(&block, data + part / parts * static_cast<int64_t>(sizeof(block)),
              sizeof(block));
  QuantPart out;
  out.block_scale = block.d.Bits();
  Unpack(block, static_cast<int>(part % parts), out);
  return out;
}

// --- random blocks ----------------------------------------------------------

// `levels`: the number of values that a quant takes.
template <typename Block>
void SetOffsetScale(float half_width, float levels, uint8_t* data) {
  Block block;
  std::memcpy(&block, data, sizeof(block));
  // Random quants cover their levels evenly, so the width of the range over
  // their number is the scale.
  block.d.Set(half_width * 2 / levels);
  std::memcpy(data, &block, sizeof(block));
}

template <typename Block>
void SetScaleAndMin(float half_width, float levels, uint8_t* data) {
  Block block;
  std::memcpy(&block, data, sizeof(block));
  block.d.Set(half_width * 2 / (levels - 1));
  block.m.Set(-half_width);
  std::memcpy(data, &block, sizeof(block));
}

template <typename Block>
void SetSubScales(float half_width, float levels, uint8_t* data) {
  constexpr float kMostScale = 63;
  Block block;
  std::memcpy(&block, data, sizeof(block));
  block.d.Set(half_width * 2 / (levels - 1) / kMostScale);
  block.dmin.Set(half_width / kMostScale);
  // All ones: the largest sub-scales and minima, whatever the layout of their
  // bits.
  std::memset(block.scales, 0xff, sizeof(block.scales));
  std::memcpy(data, &block, sizeof(block));
}

void SetQ6KScales(float half_width, uint8_t* data) {
  constexpr float kScale = 64;
  BlockQ6K block;
  std::memcpy(&block, data, sizeof(block));
  block.d.Set(half_width / 32 / kScale);
  std::memset(block.scales, static_cast<int>(kScale), sizeof(block.scales));
  std::memcpy(data, &block, sizeof(block));
}

}  // namespace

void DequantiseBlocks(WeightType type, const uint8_t* data,
                      absl::Span<float> out) {
  switch (type) {
    case WeightType::kQ4_0:
      return DecodeAll<BlockQ4_0>(kBlock, data, out);
    case WeightType::kQ4_1:
      return DecodeAll<BlockQ4_1>(kBlock, data, out);
    case WeightType::kQ5_0:
      return DecodeAll<BlockQ5_0>(kBlock, data, out);
    case WeightType::kQ5_1:
      return DecodeAll<BlockQ5_1>(kBlock, data, out);
    case WeightType::kQ8_0:
      return DecodeAll<BlockQ8_0>(kBlock, data, out);
    case WeightType::kQ4_K:
      return DecodeAll<BlockQ4K>(kSuperBlock, data, out);
    case WeightType::kQ5_K:
      return DecodeAll<BlockQ5K>(kSuperBlock, data, out);
    case WeightType::kQ6_K:
      return DecodeAll<BlockQ6K>(kSuperBlock, data, out);
    case WeightType::kFloat32:
    case WeightType::kFloat16:
    case WeightType::kBFloat16:
      break;
  }
  FORETOKEN_CHECK(false);
}

QuantPart UnpackQuants(WeightType type, const uint8_t* data, int64_t part) {
  constexpr int64_t kParts = kSuperBlock / kBlock;
  switch (type) {
    case WeightType::kQ4_0:
      return UnpackPart<BlockQ4_0>(1, data, part);
    case WeightType::kQ4_1:
      return UnpackPart<BlockQ4_1>(1, data, part);
    case WeightType::kQ5_0:
      return UnpackPart<BlockQ5_0>(1, data, part);
    case WeightType::kQ5_1:
      return UnpackPart<BlockQ5_1>(1, data, part);
    case WeightType::kQ8_0:
      return UnpackPart<BlockQ8_0>(1, data, part);
    case WeightType::kQ4_K:
      return UnpackPart<BlockQ4K>(kParts, data, part);
    case WeightType::kQ5_K:
      return UnpackPart<BlockQ5K>(kParts, data, part);
    case WeightType::kQ6_K:
      return UnpackPart<BlockQ6K>(kParts, data, part);
    case WeightType::kFloat32:
    case WeightType::kFloat16:
    case WeightType::kBFloat16:
      break;
  }
  FORETOKEN_CHECK(false);
  return {};
}

void DequantisePart(WeightType type, const QuantPart& part, float* out) {
  const float d = FloatFromFloat16(part.block_scale);
  const float m = FloatFromFloat16(part.block_min);
  const auto fill = [&](auto value) {
    for (int i = 0; i < kBlock; ++i) out[i] = value(i, int{part.quants[i]});
  };
  const auto less = [&](int offset) {
    fill([&](int, int q) { return static_cast<float>(q - offset) * d; });
  };
  switch (type) {
    case WeightType::kQ8_0:
      return less(128);
    case WeightType::kQ4_0:
      return less(8);
    case WeightType::kQ5_0:
      return less(16);
    case WeightType::kQ4_1:
    case WeightType::kQ5_1:
      return fill([&](int, int q) { return static_cast<float>(q) * d + m; });
    case WeightType::kQ4_K:
    case WeightType::kQ5_K: {
      const float sub_d = d * static_cast<float>(part.scales[0]);
      const float sub_min = m * static_cast<float>(part.min);
      return fill(
          [&](int, int q) { return sub_d * static_cast<float>(q) - sub_min; });
    }
    case WeightType::kQ6_K:
      return fill([&](int i, int q) {
        const float scale = d * static_cast<float>(part.scales[i / 16]);
        return scale * static_cast<float>(q - 32);
      });
    case WeightType::kFloat32:
    case WeightType::kFloat16:
    case WeightType::kBFloat16:
      break;
  }
  FORETOKEN_CHECK(false);
}

void SetUniformScales(WeightType type, float half_width, uint8_t* block) {
  switch (type) {
    case WeightType::kQ4_0:
      return SetOffsetScale<BlockQ4_0>(half_width, 16, block);
    case WeightType::kQ4_1:
      return SetScaleAndMin<BlockQ4_1>(half_width, 16, block);
    case WeightType::kQ5_0:
      return SetOffsetScale<BlockQ5_0>(half_width, 32, block);
    case WeightType::kQ5_1:
      return SetScaleAndMin<BlockQ5_1>(half_width, 32, block);
    case WeightType::kQ8_0:
      return SetOffsetScale<BlockQ8_0>(half_width, 256, block);
    case WeightType::kQ4_K:
      return SetSubScales<BlockQ4K>(half_width, 16, block);
    case WeightType::kQ5_K:
      return SetSubScales<BlockQ5K>(half_width, 32, block);
    case WeightType::kQ6_K:
      return SetQ6KScales(half_width, block);
    case WeightType::kFloat32:
    case WeightType::kFloat16:
    case WeightType::kBFloat16:
      break;
  }
  FORETOKEN_CHECK(false);
}

}  // namespace foretoken
