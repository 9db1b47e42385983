// The definition of every op, in plain C++. The compiler may vectorise over
// columns or lanes, never over a sum.
#include <cmath>
#include <cstring>

#include "common/infer/cpu/ops.h"
#include "common/infer/weight_types.h"

namespace foretoken {
namespace {

void GemmBf16(const GemmArgs& args) {
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
        out[c] += even * FloatFromBFloat16(w[2 * c]);
        out[c] += odd * FloatFromBFloat16(w[2 * c + 1]);
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
      for (int c = 0; c < kGemmColumns; ++c) out[c] += x[s] * w[c];
    }
  }
}

// Cody-Waite reduction to |r| <= ln(2)/2, then a degree-6 polynomial (the
// constants are those of Cephes' expf, S. Moshier), then the power of two.
float ExpOne(float x) {
  if (!(x > -87.0f)) x = x != x ? x : -87.0f;
  if (x > 88.0f) x = 88.0f;
  if (x != x) return x;
  const float n = std::nearbyintf(x * 1.44269504088896341f);
  float r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r;
  p = p + 1.0f;
  const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(n) + 127)
                        << 23;
  float power;
  std::memcpy(&power, &bits, sizeof(power));
  return p * power;
}

float KeyValue(float value) { return value; }
float KeyValue(uint16_t bits) { return FloatFromBFloat16(bits); }

template <typename T>
void Attend(const AttendArgs& args) {
  const T* keys = static_cast<const T*>(args.keys);
  const T* values = static_cast<const T*>(args.values);
  for (int32_t i = 0; i < args.queries; ++i) {
    const int32_t count = args.key_count[i];
    float* state = args.state[i];
    float* acc = state + 2;
    float weights[kAttendKeys] = {};
    for (int32_t d = 0; d < args.head_dim; ++d) {
      for (int32_t j = 0; j < count; ++j) {
        weights[j] += args.query[i][d] * KeyValue(keys[d * kAttendKeys + j]);
      }
    }
    float largest = state[0];
    for (int32_t j = 0; j < count; ++j) {
      largest = weights[j] > largest ? weights[j] : largest;
    }
    const float keep = ExpOne(state[0] - largest);
    state[0] = largest;
    float sum = 0.0f;
    for (int32_t j = 0; j < count; ++j) {
      weights[j] = ExpOne(weights[j] - largest);
      sum += weights[j];
    }
    state[1] = state[1] * keep + sum;
    for (int32_t d = 0; d < args.n; ++d) acc[d] *= keep;
    for (int32_t j = 0; j < count; ++j) {
      for (int32_t d = 0; d < args.n; ++d) {
        acc[d] += weights[j] * KeyValue(values[j * args.n + d]);
      }
    }
  }
}

void RmsNorm(const float* x, const float* weight, int n, int size, float eps,
             float* out) {
  float sum = 0.0f;
  for (int i = 0; i < n; ++i) sum += x[i] * x[i];
  const float inverse = 1.0f / std::sqrt(sum / static_cast<float>(size) + eps);
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

constexpr CpuOps kOps = {
    CpuIsa::kScalar, "scalar", GemmBf16, GemmFp32, Attend<uint16_t>,
    Attend<float>,   RmsNorm,  ToBf16,   Add,      Scale,
    SwiGlu,          Rope,     ArgMax,   Exp,      StreamSum,
};

}  // namespace

const CpuOps* ScalarOps() { return &kOps; }

}  // namespace foretoken
