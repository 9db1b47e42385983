// The arithmetic of the device twin, one row or one head at a time.
//
// Pure functions; thread-safe.
#ifndef FORETOKEN_TESTS_SUPPORT_CUDA_TWIN_TWIN_MATH_H_
#define FORETOKEN_TESTS_SUPPORT_CUDA_TWIN_TWIN_MATH_H_

#include <cstdint>

#include "common/infer/cuda/device_engine.h"

namespace foretoken::twin {

// To the nearest value of the type, as a float.
float Round(DeviceType type, float value);

// Stored 16-bit elements as floats.
void Widen(DeviceType type, const void* data, int64_t count, float* out);

// out[c] += sum over k, ascending, of x[k] * w[k][c]; w: [depth][columns], as
// one group of K gives it.
void AddProduct(const float* x, const float* w, int64_t columns, int64_t depth,
                float* out);

// out[i] = x[i] / rms(x) * weight[i]; out may be x.
void RmsNorm(const float* x, const float* weight, int64_t n, float eps,
             float* out);

// Rotates the pairs (x[i], x[i + half]).
void Rotate(float* x, const float* cosines, const float* sines, int64_t half);

float Silu(float x);

// One head's attention so far: the largest score, the sum of the weights and
// the weighted values.
struct Attention {
  float largest;
  float sum;
  float* values;  // [head_dim]
};

// Adds the result of the next chunk.
void MergeChunk(const Attention& chunk, int64_t head_dim, Attention& all);

// Adds one block of keys, in order. keys, values: [count] pointers to
// [head_dim].
void MergeBlock(const float* query, const float* const* keys,
                const float* const* values, int32_t count, int64_t head_dim,
                Attention& attention);

}  // namespace foretoken::twin

#endif  // FORETOKEN_TESTS_SUPPORT_CUDA_TWIN_TWIN_MATH_H_
