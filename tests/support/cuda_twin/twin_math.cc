#include "tests/support/cuda_twin/twin_math.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/infer/weight_types.h"
#include "common/sampling/fixed_math.h"

namespace foretoken::twin {

float Round(DeviceType type, float value) {
  return type == DeviceType::kFloat16
             ? FloatFromFloat16(Float16FromFloat(value))
             : FloatFromBFloat16(BFloat16FromFloat(value));
}

void Widen(DeviceType type, const void* data, int64_t count, float* out) {
  ConvertToFloat32(type == DeviceType::kFloat16 ? WeightType::kFloat16
                                                : WeightType::kBFloat16,
                   static_cast<const uint8_t*>(data),
                   absl::MakeSpan(out, static_cast<size_t>(count)));
}

void AddProduct(const float* x, const float* w, int64_t columns, int64_t depth,
                float* out) {
  std::vector<float> sums(columns, 0.0f);
  for (int64_t k = 0; k < depth; ++k, w += columns) {
    for (int64_t c = 0; c < columns; ++c) sums[c] += x[k] * w[c];
  }
  for (int64_t c = 0; c < columns; ++c) out[c] += sums[c];
}

void RmsNorm(const float* x, const float* weight, int64_t n, float eps,
             float* out) {
  float sum = 0.0f;
  for (int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
  const float inverse = 1.0f / std::sqrt(sum / static_cast<float>(n) + eps);
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * inverse * weight[i];
}

void Rotate(float* x, const float* cosines, const float* sines, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[i];
    const float b = x[i + half];
    x[i] = a * cosines[i] - b * sines[i];
    x[i + half] = b * cosines[i] + a * sines[i];
  }
}

float Silu(float x) {
  if (x >= 0.0f) return x / (1.0f + FixedExp(-x));
  const float e = FixedExp(x);
  return x * e / (1.0f + e);
}

void MergeChunk(const Attention& chunk, int64_t head_dim, Attention& all) {
  const float largest = std::max(all.largest, chunk.largest);
  const float keep = FixedExp(all.largest - largest);
  const float take = FixedExp(chunk.largest - largest);
  all.largest = largest;
  all.sum = all.sum * keep + chunk.sum * take;
  for (int64_t d = 0; d < head_dim; ++d) {
    all.values[d] = all.values[d] * keep + chunk.values[d] * take;
  }
}

void MergeBlock(const float* query, const float* const* keys,
                const float* const* values, int32_t count, int64_t head_dim,
                Attention& attention) {
  float scores[kDevicePageTokens];
  float largest = attention.largest;
  for (int32_t j = 0; j < count; ++j) {
    float score = 0.0f;
    for (int64_t d = 0; d < head_dim; ++d) score += query[d] * keys[j][d];
    scores[j] = score;
    // (NaN must not be lost: a row of it is told apart at the end.)
    largest = score > largest || score != score ? score : largest;
  }
  const float keep = attention.largest == largest
                         ? 1.0f
                         : FixedExp(attention.largest - largest);
  float sum = 0.0f;
  for (int32_t j = 0; j < count; ++j) {
    scores[j] = FixedExp(scores[j] - largest);
    sum += scores[j];
  }
  attention.largest = largest;
  attention.sum = attention.sum * keep + sum;
  for (int64_t d = 0; d < head_dim; ++d) {
    float value = attention.values[d] * keep;
    for (int32_t j = 0; j < count; ++j) value += scores[j] * values[j][d];
    attention.values[d] = value;
  }
}

}  // namespace foretoken::twin
