#include "common/infer/block_encoding.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/base/check.h"
#include "common/infer/block_layouts.h"

namespace foretoken {
namespace {

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
    // std::round, halves away from zero, as ggml's encoder does for this type;
    // the others truncate after adding a half.
    block.qs[i] = static_cast<int8_t>(std::round(in[i] * inverse));
  }
}

void Encode(const float* in, BlockQ4_0& block) {
  // The extreme value becomes -8, so that the range is used in full.
  const float d = Extreme(in, kBlock) / -8;
  const float inverse = Inverse(d);
  block.d.Set(d);
  const auto quant = [&](int i) {
    // +8.5: the offset of the type, and a half to round by truncation. The
    // largest positive value would be 16, hence min.
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
  // The type subtracts a non-negative minimum, so a block of positive values
  // begins at 0.
  min = std::min(min, 0.0f);
  const float range = max - min;
  // The caller sees that the scale is not finite and refuses the tensor.
  if (!std::isfinite(range)) return {range, -min};
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
    // Candidate ranges around the plain one, each refined by the closed form of
    // least squares below.
    quantise((-1.0f + 0.1f * static_cast<float>(step) + kMaxQuant) / range);
    float sum_l = 0, sum_l2 = 0, sum_xl = 0;
    for (int i = 0; i < kBlock; ++i) {
      const float wl = weights[i] * static_cast<float>(quants[i]);
      sum_l += wl;
      sum_l2 += wl * static_cast<float>(quants[i]);
      sum_xl += wl * in[i];
    }
    const float determinant = sum_w * sum_l2 - sum_l * sum_l;
    // All quants equal: no slope to fit.
    if (!(determinant > 0)) continue;
    float scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    float offset = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
    // A positive offset cannot be stored; fit without it.
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
  // Quants are set by OR below.
  std::memset(&block, 0, sizeof(block));
  // Set returns the value as stored in fp16, with which the rest is quantised.
  const float d = block.d.Set(max_scale / 63);
  const float dmin = block.dmin.Set(max_min / 63);
  if (!block.d.IsFinite() || !block.dmin.IsFinite()) return;
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
    // The extreme value becomes about -32, give or take a step of a tenth.
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
    // Compares sum_lx^2 / sum_l2, the gain of the best scale for these quants,
    // without a division.
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
  // The fit's sums overflow long before a scale does.
  const bool finite =
      std::all_of(std::begin(scales), std::end(scales),
                  [](float scale) { return std::isfinite(scale); });
  if (!finite) block.d.Set(INFINITY);
  if (!finite || extreme == 0) return;
  // The extreme sub-scale becomes -128, the only value that int8 has more on
  // the negative side.
  const float inverse = -128 / extreme;
  const float d = block.d.Set(1 / inverse);
  if (!block.d.IsFinite()) return;
  for (int i = 0; i < kSuperBlock; ++i) {
    int8_t& scale = block.scales[i / kSub];
    if (i % kSub == 0) {
      scale = static_cast<int8_t>(
          std::min(127, Nearest(inverse * scales[i / kSub])));
    }
    const float sub_d = d * static_cast<float>(scale);
    // Values left at 0 here mean 0: the scale is 0.
    if (sub_d == 0) continue;
    const int quant = std::clamp(Nearest(in[i] / sub_d), -32, 31) + 32;
    const int half = i / 128, quarter = i % 128 / 32, j = i % 32;
    block.ql[64 * half + 32 * (quarter % 2) + j] |=
        static_cast<uint8_t>(quarter < 2 ? quant & 0xf : (quant & 0xf) << 4);
    block.qh[32 * half + j] |= static_cast<uint8_t>(quant >> 4 << 2 * quarter);
  }
}

template <typename Block>
bool ScalesAreFinite(const Block& block) {
  if constexpr (requires { block.dmin; }) {
    if (!block.dmin.IsFinite()) return false;
  }
  return block.d.IsFinite();
}

template <typename Block>
bool EncodeAll(int64_t elements, absl::Span<const float> in, uint8_t* out) {
  bool finite = true;
  // By copy: blocks are unaligned in the output.
  for (size_t i = 0; i < in.size(); i += static_cast<size_t>(elements)) {
    Block block;
    Encode(in.data() + i, block);
    finite &= ScalesAreFinite(block);
    std::memcpy(out, &block, sizeof(block));
    out += sizeof(block);
  }
  return finite;
}

// `exponent`: the bits that only an infinity and NaN have all set.
template <typename Narrow>
bool EncodeHalves(absl::Span<const float> in, uint8_t* out, uint16_t exponent,
                  Narrow narrow) {
  bool finite = true;
  for (const float value : in) {
    const uint16_t bits = narrow(value);
    finite &= (bits & exponent) != exponent;
    std::memcpy(out, &bits, sizeof(bits));
    out += sizeof(bits);
  }
  return finite;
}

}  // namespace

bool EncodeWeights(WeightType type, absl::Span<const float> in, uint8_t* out) {
  switch (type) {
    case WeightType::kFloat32:
      if (!in.empty()) std::memcpy(out, in.data(), in.size() * sizeof(float));
      return true;
    case WeightType::kFloat16:
      return EncodeHalves(in, out, 0x7c00, Float16FromFloat);
    case WeightType::kBFloat16:
      return EncodeHalves(in, out, 0x7f80, BFloat16FromFloat);
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
  return false;
}

}  // namespace foretoken
