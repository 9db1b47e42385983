// The definition of every op, in plain C++. The compiler may vectorise over
// columns or lanes, never over a sum. std::fmaf rounds once, with or without an
// instruction for it.
#include <cmath>
#include <cstring>

#include "common/infer/cpu/ops.h"
#include "common/infer/weight_types.h"

namespace foretoken {
namespace {

void GemmBf16(const GemmArgs& args) {
  // Bytes of one step: two rows of K for 64 columns, in bf16.
  const int64_t steps = args.weight_bytes / 256;
  for (int32_t r = 0; r < args.rows; ++r) {
    const uint16_t* x = reinterpret_cast<const uint16_t*>(
        static_cast<const char*>(args.x) + r * args.x_stride);
    const uint16_t* w = static_cast<const uint16_t*>(args.weights);
    float* out = args.tile + static_cast<int64_t>(r) * kGemmColumns;
    for (int c = 0; c < kGemmColumns; ++c) out[c] = 0.0f;
    for (int64_t s = 0; s < steps; ++s, w += 2 * kGemmColumns) {
      const float even = FloatFromBFloat16(x[2 * s]);
      const float odd = FloatFromBFloat16(x[2 * s + 1]);
      for (int c = 0; c < kGemmColumns; ++c) {
        // Even before odd, one after the other: this order defines the result,
        // and other tables must keep it.
        out[c] = std::fmaf(even, FloatFromBFloat16(w[2 * c]), out[c]);
        out[c] = std::fmaf(odd, FloatFromBFloat16(w[2 * c + 1]), out[c]);
      }
    }
  }
}

void GemmFp32(const GemmArgs& args) {
  const int64_t steps = args.weight_bytes / 256;
  for (int32_t r = 0; r < args.rows; ++r) {
    const float* x = reinterpret_cast<const float*>(
        static_cast<const char*>(args.x) + r * args.x_stride);
    const float* w = static_cast<const float*>(args.weights);
    float* out = args.tile + static_cast<int64_t>(r) * kGemmColumns;
    for (int c = 0; c < kGemmColumns; ++c) out[c] = 0.0f;
    for (int64_t s = 0; s < steps; ++s, w += kGemmColumns) {
      for (int c = 0; c < kGemmColumns; ++c) {
        out[c] = std::fmaf(x[s], w[c], out[c]);
      }
    }
  }
}

// ------------------------------------------------------ quantised products

// The quants of one block of every column of a strip, unpacked.
struct StripQuants {
  uint8_t quants[kQuantColumns][kQuantBlock];

  void SetNibbles(const QuantNibbles& low) {
    for (int c = 0; c < kQuantColumns; ++c) {
      for (int i = 0; i < kQuantBlock / 2; ++i) {
        const uint8_t byte = low[i / 4][c][i % 4];
        quants[c][i] = byte & 0xf;
        quants[c][i + kQuantBlock / 2] = byte >> 4;
      }
    }
  }
  void AddFifthBits(const QuantFifthBits& fifth) {
    // A bit per element, eight elements a byte, in the order in which vector
    // code unpacks them.
    for (int c = 0; c < kQuantColumns; ++c) {
      for (int i = 0; i < kQuantBlock; ++i) {
        quants[c][i] |= (fifth[c][i % 4] >> (i / 4) & 1) << 4;
      }
    }
  }
  void AddHighPairs(const QuantHighPairs& high) {
    for (int c = 0; c < kQuantColumns; ++c) {
      for (int i = 0; i < kQuantBlock; ++i) {
        const uint8_t pairs = high[i / 16][c][i % 4];
        quants[c][i] |= (pairs >> (2 * (i % 16 / 4)) & 3) << 4;
      }
    }
  }
};

void ToFloats(const QuantHalves& halves, float (&out)[kQuantColumns]) {
  for (int c = 0; c < kQuantColumns; ++c) out[c] = FloatFromFloat16(halves[c]);
}

struct StripBlock : StripQuants {
  static constexpr int kOffset = 0;  // of the quants
  static constexpr bool kMinima = false;
  float scales[kQuantColumns];
  float minima[kQuantColumns];
};

struct StripQ8_0 : StripBlock {
  using Unit = UnitQ8_0;
  static constexpr int kOffset = 128;
  void Load(const Unit& unit) {
    ToFloats(unit.scale, scales);
    for (int c = 0; c < kQuantColumns; ++c) {
      for (int i = 0; i < kQuantBlock; ++i) {
        quants[c][i] = unit.quants[i / 4][c][i % 4];
      }
    }
  }
};
struct StripQ4_0 : StripBlock {
  using Unit = UnitQ4_0;
  static constexpr int kOffset = 8;
  void Load(const Unit& unit) {
    ToFloats(unit.scale, scales);
    SetNibbles(unit.low);
  }
};
struct StripQ4_1 : StripBlock {
  using Unit = UnitQ4_1;
  static constexpr bool kMinima = true;
  void Load(const Unit& unit) {
    ToFloats(unit.scale, scales);
    ToFloats(unit.min, minima);
    SetNibbles(unit.low);
  }
};
struct StripQ5_0 : StripBlock {
  using Unit = UnitQ5_0;
  static constexpr int kOffset = 16;
  void Load(const Unit& unit) {
    ToFloats(unit.scale, scales);
    SetNibbles(unit.low);
    AddFifthBits(unit.fifth);
  }
};
struct StripQ5_1 : StripBlock {
  using Unit = UnitQ5_1;
  static constexpr bool kMinima = true;
  void Load(const Unit& unit) {
    ToFloats(unit.scale, scales);
    ToFloats(unit.min, minima);
    SetNibbles(unit.low);
    AddFifthBits(unit.fifth);
  }
};

// One block of a row times one block of a strip.
template <typename Strip>
void AddBlock(const Strip& strip, const Int8Block& x, float* out) {
  for (int c = 0; c < kQuantColumns; ++c) {
    int32_t sum = 0;
    for (int i = 0; i < kQuantBlock; ++i) {
      // Integers: the sum of a block is exact, so its order does not matter and
      // every table agrees.
      sum += (strip.quants[c][i] - Strip::kOffset) * x.q[i];
    }
    // One rounding per block and column; the scale of weight and activation are
    // multiplied first, in every table.
    out[c] =
        std::fmaf(static_cast<float>(sum), strip.scales[c] * x.scale, out[c]);
    if (Strip::kMinima) {
      out[c] = std::fmaf(strip.minima[c], x.scaled_sum, out[c]);
    }
  }
}

template <typename Strip>
void GemmQuant(const GemmArgs& args) {
  constexpr int kStrips = kGemmColumns / kQuantColumns;
  const auto* unit = static_cast<const typename Strip::Unit*>(args.weights);
  const int64_t units =
      args.weight_bytes / kStrips / static_cast<int64_t>(sizeof(*unit));
  for (int64_t i = 0; i < static_cast<int64_t>(args.rows) * kGemmColumns; ++i) {
    args.tile[i] = 0.0f;
  }
  Strip strip;
  for (int column = 0; column < kGemmColumns; column += kQuantColumns) {
    // Unpacked once for all rows.
    for (int64_t block = 0; block < units; ++block) {
      strip.Load(unit[block]);
      for (int64_t r = 0; r < args.rows; ++r) {
        const auto* x = reinterpret_cast<const Int8Block*>(
            static_cast<const char*>(args.x) + r * args.x_stride);
        AddBlock(strip, x[block], args.tile + r * kGemmColumns + column);
      }
    }
    unit += units;
  }
}

// One unit of a K type, unpacked.
struct StripUnit {
  static constexpr int kOffset = 0;  // of the quants
  static constexpr bool kMinima = false;
  struct Part : StripQuants {
    int32_t scales[2][kQuantColumns];  // of 16 elements each
    int32_t minima[kQuantColumns];
  } parts[kSuperBlockParts];
  float scales[kQuantColumns];
  float minima[kQuantColumns];

  template <typename Unit>
  void LoadWithMinima(const Unit& unit) {
    ToFloats(unit.scale, scales);
    ToFloats(unit.min, minima);
    for (int p = 0; p < kSuperBlockParts; ++p) {
      parts[p].SetNibbles(unit.parts[p].low);
      // Q4_K and Q5_K have one scale for 32 elements, Q6_K one for 16; this
      // type has two, equal ones for the former.
      for (int c = 0; c < kQuantColumns; ++c) {
        parts[p].scales[0][c] = parts[p].scales[1][c] = unit.scales[p][c];
        parts[p].minima[c] = unit.mins[p / 2][c][p % 2];
      }
    }
  }
};

struct StripQ4K : StripUnit {
  using Unit = UnitQ4K;
  static constexpr bool kMinima = true;
  void Load(const Unit& unit) { LoadWithMinima(unit); }
};
struct StripQ5K : StripUnit {
  using Unit = UnitQ5K;
  static constexpr bool kMinima = true;
  void Load(const Unit& unit) {
    LoadWithMinima(unit);
    for (int p = 0; p < kSuperBlockParts; ++p) {
      parts[p].AddFifthBits(unit.parts[p].fifth);
    }
  }
};
struct StripQ6K : StripUnit {
  using Unit = UnitQ6K;
  static constexpr int kOffset = 32;
  void Load(const Unit& unit) {
    ToFloats(unit.scale, scales);
    for (int p = 0; p < kSuperBlockParts; ++p) {
      parts[p].SetNibbles(unit.parts[p].low);
      parts[p].AddHighPairs(unit.parts[p].high);
      for (int c = 0; c < kQuantColumns; ++c) {
        for (int h = 0; h < 2; ++h) {
          parts[p].scales[h][c] = unit.scales[p][c][h];
        }
      }
    }
  }
};

// One super-block of a row times one unit of a strip.
template <typename Strip>
void AddSuperBlock(const Strip& strip, const Int8Block* x, float* out) {
  for (int c = 0; c < kQuantColumns; ++c) {
    int32_t products = 0;
    int32_t minus_minima = 0;
    for (int p = 0; p < kSuperBlockParts; ++p) {
      const StripUnit::Part& part = strip.parts[p];
      for (int h = 0; h < 2; ++h) {
        int32_t sum = 0;
        for (int i = h * kQuantBlock / 2; i < (h + 1) * kQuantBlock / 2; ++i) {
          sum += (part.quants[c][i] - Strip::kOffset) * x[p].q[i];
        }
        products += part.scales[h][c] * sum;
      }
      // Minima are subtracted by the sum of the activations, which is part of
      // their block.
      if (Strip::kMinima) minus_minima += part.minima[c] * x[p].minus_sum;
    }
    // Minima before products, in every table.
    if (Strip::kMinima) {
      out[c] = std::fmaf(static_cast<float>(minus_minima),
                         strip.minima[c] * x[0].scale, out[c]);
    }
    out[c] = std::fmaf(static_cast<float>(products),
                       strip.scales[c] * x[0].scale, out[c]);
  }
}

template <typename Strip>
void GemmSuper(const GemmArgs& args) {
  constexpr int kStrips = kGemmColumns / kQuantColumns;
  const auto* unit = static_cast<const typename Strip::Unit*>(args.weights);
  const int64_t units =
      args.weight_bytes / kStrips / static_cast<int64_t>(sizeof(*unit));
  for (int64_t i = 0; i < static_cast<int64_t>(args.rows) * kGemmColumns; ++i) {
    args.tile[i] = 0.0f;
  }
  Strip strip;
  for (int column = 0; column < kGemmColumns; column += kQuantColumns) {
    for (int64_t u = 0; u < units; ++u) {
      strip.Load(unit[u]);
      for (int64_t r = 0; r < args.rows; ++r) {
        const auto* x = reinterpret_cast<const Int8Block*>(
            static_cast<const char*>(args.x) + r * args.x_stride);
        AddSuperBlock(strip, x + u * kSuperBlockParts,
                      args.tile + r * kGemmColumns + column);
      }
    }
    unit += units;
  }
}

// Blocks whose magnitudes share a scale.
template <int kBlocks>
void ToInt8Blocks(const float* x, Int8Block* out) {
  // As integers, so that NaN is the largest.
  uint32_t top = 0;
  for (int i = 0; i < kBlocks * kQuantBlock; ++i) {
    const uint32_t magnitude = BitsFromFloat(x[i]) & 0x7fffffffu;
    top = magnitude > top ? magnitude : top;
  }
  const float largest = FloatFromBits(top);
  // Below 2^-100 the inverse would overflow; such a block counts as zeros.
  const bool counts = largest >= 0x1p-100f && top < 0x7f800000u;
  const float inverse = counts ? 127.0f / largest : 0.0f;
  for (int b = 0; b < kBlocks; ++b, x += kQuantBlock) {
    Int8Block& block = out[b];
    int32_t halves[2] = {};
    for (int i = 0; i < kQuantBlock; ++i) {
      // nearbyint rounds half to even, as the vector instruction does.
      block.q[i] = counts ? static_cast<int8_t>(std::nearbyintf(x[i] * inverse))
                          : int8_t{0};
      halves[i / 16] += block.q[i];
    }
    block.scale = counts ? largest / 127.0f : 0.0f;
    // Infinity or NaN in the block: its scale is NaN, so that it shows in the
    // logits instead of becoming a large number.
    if (top >= 0x7f800000u) block.scale = FloatFromBits(0x7fc00000u);
    block.minus_sum = -(halves[0] + halves[1]);
    for (int h = 0; h < 2; ++h) {
      block.minus_half_sums[h] = static_cast<int16_t>(-halves[h]);
    }
    block.scaled_sum = block.scale * static_cast<float>(-block.minus_sum);
  }
  for (int b = 0; b < kBlocks; ++b) {
    for (int i = 0; i < 2; ++i) {
      out[b].minus_pair_sums[i] =
          kBlocks == 1 ? int16_t{0}
                       : static_cast<int16_t>(out[b / 2 * 2 + i].minus_sum);
    }
  }
}

void ToInt8(const float* x, int n, Int8Block* out) {
  for (int i = 0; i < n / kQuantBlock; ++i) {
    ToInt8Blocks<1>(x + i * kQuantBlock, out + i);
  }
}

void ToInt8Super(const float* x, int n, Int8Block* out) {
  for (int i = 0; i < n / kQuantBlock; i += kSuperBlockParts) {
    ToInt8Blocks<kSuperBlockParts>(x + i * kQuantBlock, out + i);
  }
}

// ----------------------------------------------------------------- functions

// Cody-Waite reduction to |r| <= ln(2)/2, then a degree-6 polynomial (the
// constants are those of Cephes' expf, S. Moshier), then the power of two.
float ExpOne(float x) {
  // Clamped to the range where the result is a normal float; NaN stays NaN. The
  // comparison is negated for it.
  if (!(x > -87.0f)) x = x != x ? x : -87.0f;
  if (x > 88.0f) x = 88.0f;
  if (x != x) return x;
  const float n = std::nearbyintf(x * 1.44269504088896341f);
  // ln(2) in two parts: n times the first is exact, so the reduction loses no
  // bits.
  float r = std::fmaf(n, -0.693359375f, x);
  r = std::fmaf(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = std::fmaf(p, r, 1.3981999507e-3f);
  p = std::fmaf(p, r, 8.3334519073e-3f);
  p = std::fmaf(p, r, 4.1665795894e-2f);
  p = std::fmaf(p, r, 1.6666665459e-1f);
  p = std::fmaf(p, r, 5.0000001201e-1f);
  p = std::fmaf(p, r * r, r);
  p = p + 1.0f;
  const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(n) + 127)
                        << 23;
  float power;
  std::memcpy(&power, &bits, sizeof(power));
  return p * power;
}

// The lanes of a sum, by halves.
float SumLanes(float (&lanes)[kCpuPad]) {
  // Halves, as vector registers are reduced: the order defines the sum.
  for (int half = kCpuPad / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

float KeyValue(float value) { return value; }
float KeyValue(uint16_t bits) { return FloatFromBFloat16(bits); }

// scores: [32], zeros.
template <typename T>
void AddScores(const AttendArgs& args, const float* query, int32_t count,
               float* scores) {
  const T* keys = static_cast<const T*>(args.keys);
  for (int32_t d = 0; d < args.head_dim; ++d) {
    for (int32_t j = 0; j < count; ++j) {
      scores[j] =
          std::fmaf(query[d], KeyValue(keys[d * kAttendKeys + j]), scores[j]);
    }
  }
}

template <>
void AddScores<int8_t>(const AttendArgs& args, const float* query,
                       int32_t count, float* scores) {
  const int8_t* keys = static_cast<const int8_t*>(args.keys);
  for (int32_t first = 0; first < args.head_dim; first += kKvScaleBlock) {
    const int32_t end = args.head_dim < first + kKvScaleBlock
                            ? args.head_dim
                            : first + kKvScaleBlock;
    float sums[kAttendKeys] = {};
    for (int32_t d = first; d < end; ++d) {
      for (int32_t j = 0; j < count; ++j) {
        // Summed over a scale block before the scale is applied: one
        // multiplication for 32.
        sums[j] = std::fmaf(query[d], keys[d * kAttendKeys + j], sums[j]);
      }
    }
    const float* scales = args.key_scales + first / kKvScaleBlock * kAttendKeys;
    for (int32_t j = 0; j < count; ++j) {
      scores[j] = std::fmaf(sums[j], scales[j], scores[j]);
    }
  }
}

// Value `j`, times its weight, to acc[0..n).
template <typename T>
void AddValue(const AttendArgs& args, int32_t j, float weight, float* acc) {
  const T* values = static_cast<const T*>(args.values) + j * args.n;
  for (int32_t d = 0; d < args.n; ++d) {
    acc[d] = std::fmaf(weight, KeyValue(values[d]), acc[d]);
  }
}

template <>
void AddValue<int8_t>(const AttendArgs& args, int32_t j, float weight,
                      float* acc) {
  const int8_t* values = static_cast<const int8_t*>(args.values) + j * args.n;
  for (int32_t d = 0; d < args.n; ++d) {
    const float scale = args.value_scales[d / kKvScaleBlock * kAttendKeys + j];
    acc[d] = std::fmaf(weight * scale, values[d], acc[d]);
  }
}

template <typename T>
void Attend(const AttendArgs& args) {
  for (int32_t i = 0; i < args.queries; ++i) {
    const int32_t count = args.key_count[i];
    float* state = args.state[i];
    float* acc = state + 2;
    float weights[kAttendKeys] = {};
    AddScores<T>(args, args.query[i], count, weights);
    float largest = state[0];
    for (int32_t j = 0; j < count; ++j) {
      largest = weights[j] > largest ? weights[j] : largest;
    }
    // What was accumulated so far was relative to a smaller maximum.
    const float keep = ExpOne(state[0] - largest);
    state[0] = largest;
    float lanes[kCpuPad] = {};
    for (int32_t j = 0; j < count; ++j) {
      weights[j] = ExpOne(weights[j] - largest);
      lanes[j % kCpuPad] += weights[j];
    }
    state[1] = state[1] * keep + SumLanes(lanes);
    for (int32_t d = 0; d < args.n; ++d) acc[d] *= keep;
    for (int32_t j = 0; j < count; ++j) AddValue<T>(args, j, weights[j], acc);
  }
}

void RmsNorm(const float* x, const float* weight, int n, int size, float eps,
             float* out) {
  float lanes[kCpuPad] = {};
  // Sixteen partial sums, so that vector tables can keep the same order.
  for (int i = 0; i < n; ++i) {
    lanes[i % kCpuPad] = std::fmaf(x[i], x[i], lanes[i % kCpuPad]);
  }
  // By `size`, without the padding, whose squares are zero.
  const float mean = SumLanes(lanes) / static_cast<float>(size);
  const float inverse = 1.0f / std::sqrt(mean + eps);
  for (int i = 0; i < n; ++i) out[i] = x[i] * inverse * weight[i];
}

void ToBf16(const float* x, int n, uint16_t* out) {
  for (int i = 0; i < n; ++i) {
    out[i] = BFloat16FromFloat(x[i]);
  }
}

void Add(float* acc, const float* x, int n) {
  for (int i = 0; i < n; ++i) acc[i] += x[i];
}

void Scale(float* x, float factor, int n) {
  for (int i = 0; i < n; ++i) x[i] *= factor;
}

void SwiGlu(const float* gate, const float* up, int n, float* out) {
  for (int i = 0; i < n; ++i) {
    out[i] = gate[i] / (1.0f + ExpOne(-gate[i])) * up[i];
  }
}

void Rope(float* x, const float* cosines, const float* sines, int half) {
  for (int i = 0; i < half; ++i) {
    const float a = x[i];
    const float b = x[i + half];
    x[i] = a * cosines[i] - b * sines[i];
    x[i + half] = b * cosines[i] + a * sines[i];
  }
}

int32_t ArgMax(const float* x, int size) {
  int32_t best = 0;
  float largest = -INFINITY;
  // Strictly greater: the first of equals wins, and NaN never does.
  for (int i = 0; i < size; ++i) {
    if (x[i] > largest) {
      largest = x[i];
      best = i;
    }
  }
  return best;
}

void Exp(const float* x, int n, float* out) {
  for (int i = 0; i < n; ++i) out[i] = ExpOne(x[i]);
}

float StreamSum(const float* x, int64_t size, int64_t /*ahead*/) {
  float lanes[128] = {};
  for (int64_t i = 0; i < size; i += 128) {
    for (int j = 0; j < 128; ++j) lanes[j] += x[i + j];
  }
  float sum = 0.0f;
  for (const float lane : lanes) sum += lane;
  return sum;
}

// Not in registers, but at the speed of the loops above.
int64_t PeakFloat(int64_t steps, float* sink) {
  // Read from memory: a constant would let the compiler compute the loop in
  // advance.
  const float row = sink[0];
  for (int64_t s = 0; s < steps; ++s) {
    for (int c = 0; c < kGemmColumns; ++c) sink[c] += row * 0.5f;
  }
  return steps * kGemmColumns;
}

int64_t PeakInt8(int64_t steps, float* sink) {
  StripQ4_0 strip = {};
  Int8Block x = {};
  for (int64_t s = 0; s < steps; ++s) {
    // The operands are unknown in every step: their product would be folded.
    asm volatile("" : : "r"(&strip), "r"(&x) : "memory");
    AddBlock(strip, x, sink);
  }
  return steps * kQuantColumns * kQuantBlock;
}

constexpr CpuOps kOps = {
    CpuIsa::kScalar,
    kCpuIsaNames[static_cast<int>(CpuIsa::kScalar)],
    {GemmFp32, GemmBf16, GemmQuant<StripQ8_0>, GemmQuant<StripQ4_0>,
     GemmQuant<StripQ4_1>, GemmQuant<StripQ5_0>, GemmQuant<StripQ5_1>,
     GemmSuper<StripQ4K>, GemmSuper<StripQ5K>, GemmSuper<StripQ6K>},
    Attend<uint16_t>,
    Attend<float>,
    Attend<int8_t>,
    RmsNorm,
    ToBf16,
    ToInt8,
    ToInt8Super,
    Add,
    Scale,
    SwiGlu,
    Rope,
    ArgMax,
    Exp,
    StreamSum,
    {PeakFloat, PeakFloat, PeakInt8, PeakInt8},
};

}  // namespace

const CpuOps* ScalarOps() { return &kOps; }

}  // namespace foretoken
