#include "common/infer/block_quants.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/base/check.h"

namespace foretoken {
namespace {

constexpr int kBlock = 32;        // elements of a Q8_0, Q4_x or Q5_x block
constexpr int kSuperBlock = 256;  // of a K block

// Blocks as they lie in the file; every member is a byte, so any address will
// do.
struct Half {
  uint8_t bytes[2];
  uint16_t Bits() const {
    uint16_t bits;
    std::memcpy(&bits, bytes, sizeof(bits));
    return bits;
  }
  float Get() const { return FloatFromFloat16(Bits()); }
  // Rounds, and returns what Get() will.
  float Set(float value) {
    const uint16_t bits = Float16FromFloat(value);
    std::memcpy(bytes, &bits, sizeof(bits));
    return FloatFromFloat16(bits);
  }
};

struct BlockQ4_0 {
  Half d;
  uint8_t qs[kBlock / 2];  // low nibbles: the first half of the elements
};
struct BlockQ4_1 {
  Half d, m;
  uint8_t qs[kBlock / 2];
};
struct BlockQ5_0 {
  Half d;
  uint8_t qh[4];  // the fifth bits
  uint8_t qs[kBlock / 2];
};
struct BlockQ5_1 {
  Half d, m;
  uint8_t qh[4];
  uint8_t qs[kBlock / 2];
};
struct BlockQ8_0 {
  Half d;
  int8_t qs[kBlock];
};
struct BlockQ4K {
  Half d, dmin;
  uint8_t scales[12];  // eight scales and eight minima of six bits
  uint8_t qs[kSuperBlock / 2];
};
struct BlockQ5K {
  Half d, dmin;
  uint8_t scales[12];
  uint8_t qh[kSuperBlock / 8];
  uint8_t qs[kSuperBlock / 2];
};
struct BlockQ6K {
  uint8_t ql[kSuperBlock / 2];
  uint8_t qh[kSuperBlock / 4];
  int8_t scales[kSuperBlock / 16];
  Half d;
};
static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24);
static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4K) == 144);
static_assert(sizeof(BlockQ5K) == 176 && sizeof(BlockQ6K) == 210);

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

// --- encoding ---------------------------------------------------------------

// The value of the largest magnitude, the first one if there are several.
float Extreme(const float* in, int count) {
  float extreme = 0;
  for (int i = 0; i < count; ++i) {
    if (std::abs(in[i]) > std::abs(extreme)) extreme = in[i];
  }
  return extreme;
}

// 0 for a block of zeros, or of values so small that their scale is 0 in fp16.
float Inverse(float value) {
  const float inverse = 1 / value;
  return std::isfinite(inverse) ? inverse : 0;
}

// K blocks of smaller values are zeros (ggml's GROUP_MAX_EPS).
constexpr float kNothing = 1e-15f;

// Ties to even, as ggml's nearest_int. Values are within +-2^22.
int Nearest(float value) { return static_cast<int>(std::nearbyint(value)); }

void Encode(const float* in, BlockQ8_0& block) {
  const float d = std::abs(Extreme(in, kBlock)) / 127;
  const float inverse = Inverse(d);
  block.d.Set(d);
  for (int i = 0; i < kBlock; ++i) {
    block.qs[i] = static_cast<int8_t>(std::round(in[i] * inverse));
  }
}

void Encode(const float* in, BlockQ4_0& block) {
  // The extreme value becomes -8, so that the range is used in full.
  const float d = Extreme(in, kBlock) / -8;
  const float inverse = Inverse(d);
  block.d.Set(d);
  const auto quant = [&](int i) {
    return std::min(15, static_cast<int>(in[i] * inverse + 8.5f));
  };
  for (int i = 0; i < kBlock / 2; ++i) {
    block.qs[i] = static_cast<uint8_t>(quant(i) | quant(i + kBlock / 2) << 4);
  }
}

void Encode(const float* in, BlockQ5_0& block) {
  const float d = Extreme(in, kBlock) / -16;
  const float inverse = Inverse(d);
  block.d.Set(d);
  const auto quant = [&](int i) {
    return std::min(31, static_cast<int>(in[i] * inverse + 16.5f));
  };
  uint32_t fifth = 0;
  for (int i = 0; i < kBlock / 2; ++i) {
    const int low = quant(i);
    const int high = quant(i + kBlock / 2);
    block.qs[i] = static_cast<uint8_t>((low & 0xf) | (high & 0xf) << 4);
    fifth |= static_cast<uint32_t>(low >> 4) << i;
    fifth |= static_cast<uint32_t>(high >> 4) << (i + 16);
  }
  std::memcpy(block.qh, &fifth, sizeof(fifth));
}

struct ScaleAndMin {
  float scale = 0;
  float min = 0;  // >= 0; subtracted
};

// Fits in[i] ~ scale * q - min, q in 0..15, by weighted least squares over a
// few candidate ranges (make_qkx2_quants of ggml: nstep 20 from -1 by 0.1).
ScaleAndMin FitScaleAndMin(const float* in, const float* weights) {
  constexpr int kMaxQuant = 15;
  constexpr int kSteps = 20;
  float min = in[0], max = in[0];
  float sum_w = 0, sum_x = 0;
  for (int i = 0; i < kBlock; ++i) {
    min = std::min(min, in[i]);
    max = std::max(max, in[i]);
    sum_w += weights[i];
    sum_x += weights[i] * in[i];
  }
  min = std::min(min, 0.0f);
  const float range = max - min;
  if (!(range > kNothing)) return {0, -min};
  int quants[kBlock];
  const auto quantise = [&](float inverse) {
    for (int i = 0; i < kBlock; ++i) {
      quants[i] = std::clamp(Nearest(inverse * (in[i] - min)), 0, kMaxQuant);
    }
  };
  const auto error = [&](float scale, float offset) {
    float sum = 0;
    for (int i = 0; i < kBlock; ++i) {
      const float diff = scale * static_cast<float>(quants[i]) + offset - in[i];
      sum += weights[i] * diff * diff;
    }
    return sum;
  };
  float best_scale = range / kMaxQuant;
  float best_min = min;
  quantise(kMaxQuant / range);
  float best_error = error(best_scale, best_min);
  for (int step = 0; step <= kSteps; ++step) {
    quantise((-1.0f + 0.1f * static_cast<float>(step) + kMaxQuant) / range);
    float sum_l = 0, sum_l2 = 0, sum_xl = 0;
    for (int i = 0; i < kBlock; ++i) {
      const float wl = weights[i] * static_cast<float>(quants[i]);
      sum_l += wl;
      sum_l2 += wl * static_cast<float>(quants[i]);
      sum_xl += wl * in[i];
    }
    const float determinant = sum_w * sum_l2 - sum_l * sum_l;
    if (!(determinant > 0)) continue;
    float scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    float offset = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
    if (offset > 0) {
      offset = 0;
      scale = sum_xl / sum_l2;
    }
    const float this_error = error(scale, offset);
    if (this_error < best_error) {
      best_error = this_error;
      best_scale = scale;
      best_min = offset;
    }
  }
  return {best_scale, -best_min};
}

void Encode(const float* in, BlockQ4K& block) {
  constexpr int kSubBlocks = kSuperBlock / kBlock;
  ScaleAndMin fits[kSubBlocks];
  float max_scale = 0, max_min = 0;
  for (int i = 0; i < kSubBlocks; ++i) {
    const float* sub = in + i * kBlock;
    float sum_x2 = 0;
    for (int j = 0; j < kBlock; ++j) sum_x2 += sub[j] * sub[j];
    // Large values matter more, but small ones are not nothing.
    const float level = std::sqrt(sum_x2 / kBlock);
    float weights[kBlock];
    for (int j = 0; j < kBlock; ++j) weights[j] = level + std::abs(sub[j]);
    fits[i] = FitScaleAndMin(sub, weights);
    max_scale = std::max(max_scale, fits[i].scale);
    max_min = std::max(max_min, fits[i].min);
  }
  const float scale_inverse = max_scale > 0 ? 63 / max_scale : 0;
  const float min_inverse = max_min > 0 ? 63 / max_min : 0;
  std::memset(&block, 0, sizeof(block));
  const float d = block.d.Set(max_scale / 63);
  const float dmin = block.dmin.Set(max_min / 63);
  for (int i = 0; i < kSubBlocks; ++i) {
    const int scale = std::min(63, Nearest(scale_inverse * fits[i].scale));
    const int min = std::min(63, Nearest(min_inverse * fits[i].min));
    if (i < 4) {  // see SubScale
      block.scales[i] |= static_cast<uint8_t>(scale);
      block.scales[i + 4] |= static_cast<uint8_t>(min);
    } else {
      block.scales[i + 4] = static_cast<uint8_t>((scale & 0xf) | min << 4);
      block.scales[i - 4] |= static_cast<uint8_t>(scale >> 4 << 6);
      block.scales[i] |= static_cast<uint8_t>(min >> 4 << 6);
    }
    // Quantised again, with the scale and minimum as they were rounded.
    const float sub_d = d * static_cast<float>(scale);
    if (sub_d == 0) continue;
    const float sub_min = dmin * static_cast<float>(min);
    for (int j = 0; j < kBlock; ++j) {
      const float quotient = (in[i * kBlock + j] + sub_min) / sub_d;
      const int quant = std::clamp(Nearest(quotient), 0, 15);
      block.qs[i / 2 * kBlock + j] |=
          static_cast<uint8_t>(i % 2 == 0 ? quant : quant << 4);
    }
  }
}

// Fits in[i] ~ scale * q, q in -32..31, over 16 values weighted by their
// squares (make_qx_quants of ggml with rmse_type 1).
float FitScale(const float* in) {
  constexpr int kCount = 16;
  constexpr int kLevels = 32;
  const float extreme = Extreme(in, kCount);
  if (std::abs(extreme) < kNothing) return 0;
  float best_scale = 0, best = 0;
  // The plain range first: of equal fits it wins.
  for (const int step :
       {0, -9, -8, -7, -6, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
    const float inverse =
        -(kLevels + 0.1f * static_cast<float>(step)) / extreme;
    float sum_lx = 0, sum_l2 = 0;
    for (int i = 0; i < kCount; ++i) {
      const float l = static_cast<float>(
          std::clamp(Nearest(inverse * in[i]), -kLevels, kLevels - 1));
      const float weight = in[i] * in[i];
      sum_lx += weight * in[i] * l;
      sum_l2 += weight * l * l;
    }
    if (sum_l2 > 0 && (step == 0 || sum_lx * sum_lx > best * sum_l2)) {
      best_scale = sum_lx / sum_l2;
      best = best_scale * sum_lx;
    }
  }
  return best_scale;
}

void Encode(const float* in, BlockQ6K& block) {
  constexpr int kSubBlocks = 16;
  constexpr int kSub = kSuperBlock / kSubBlocks;
  float scales[kSubBlocks];
  for (int i = 0; i < kSubBlocks; ++i) scales[i] = FitScale(in + i * kSub);
  std::memset(&block, 0, sizeof(block));
  const float extreme = Extreme(scales, kSubBlocks);
  if (extreme == 0) return;
  const float inverse = -128 / extreme;
  const float d = block.d.Set(1 / inverse);
  for (int i = 0; i < kSuperBlock; ++i) {
    int8_t& scale = block.scales[i / kSub];
    if (i % kSub == 0) {
      scale = static_cast<int8_t>(
          std::min(127, Nearest(inverse * scales[i / kSub])));
    }
    const float sub_d = d * static_cast<float>(scale);
    // What is left at 0 here means 0: the scale is 0.
    if (sub_d == 0) continue;
    const int quant = std::clamp(Nearest(in[i] / sub_d), -32, 31) + 32;
    const int half = i / 128, quarter = i % 128 / 32, j = i % 32;
    block.ql[64 * half + 32 * (quarter % 2) + j] |=
        static_cast<uint8_t>(quarter < 2 ? quant & 0xf : (quant & 0xf) << 4);
    block.qh[32 * half + j] |= static_cast<uint8_t>(quant >> 4 << 2 * quarter);
  }
}

template <typename Block>
void EncodeAll(int64_t elements, absl::Span<const float> in, uint8_t* out) {
  for (size_t i = 0; i < in.size(); i += static_cast<size_t>(elements)) {
    Block block;
    Encode(in.data() + i, block);
    std::memcpy(out, &block, sizeof(block));
    out += sizeof(block);
  }
}

template <typename Narrow>
void EncodeHalves(absl::Span<const float> in, uint8_t* out, Narrow narrow) {
  for (const float value : in) {
    const uint16_t bits = narrow(value);
    std::memcpy(out, &bits, sizeof(bits));
    out += sizeof(bits);
  }
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

void EncodeWeights(WeightType type, absl::Span<const float> in, uint8_t* out) {
  switch (type) {
    case WeightType::kFloat32:
      if (!in.empty()) std::memcpy(out, in.data(), in.size() * sizeof(float));
      return;
    case WeightType::kFloat16:
      return EncodeHalves(in, out, Float16FromFloat);
    case WeightType::kBFloat16:
      return EncodeHalves(in, out, BFloat16FromFloat);
    case WeightType::kQ8_0:
      return EncodeAll<BlockQ8_0>(kBlock, in, out);
    case WeightType::kQ4_0:
      return EncodeAll<BlockQ4_0>(kBlock, in, out);
    case WeightType::kQ5_0:
      return EncodeAll<BlockQ5_0>(kBlock, in, out);
    case WeightType::kQ4_K:
      return EncodeAll<BlockQ4K>(kSuperBlock, in, out);
    case WeightType::kQ6_K:
      return EncodeAll<BlockQ6K>(kSuperBlock, in, out);
    default:
      break;
  }
  FORETOKEN_CHECK(false);
}

}  // namespace foretoken
