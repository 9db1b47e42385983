// CUDA's fp16 type as far as the kernels use it.
#ifndef FORETOKEN_TESTS_SUPPORT_CUDA_ON_CPU_CUDA_FP16_H_
#define FORETOKEN_TESTS_SUPPORT_CUDA_ON_CPU_CUDA_FP16_H_

#include <cstdint>

#include "common/infer/weight_types.h"

struct __half {
  uint16_t bits;
};

inline __half __float2half_rn(float x) {
  return {foretoken::Float16FromFloat(x)};
}
inline float __half2float(__half x) {
  return foretoken::FloatFromFloat16(x.bits);
}

#endif  // FORETOKEN_TESTS_SUPPORT_CUDA_ON_CPU_CUDA_FP16_H_
