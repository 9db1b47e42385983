// CUDA's bf16 type as far as the kernels use it.
#ifndef FORETOKEN_TESTS_SUPPORT_CUDA_ON_CPU_CUDA_BF16_H_
#define FORETOKEN_TESTS_SUPPORT_CUDA_ON_CPU_CUDA_BF16_H_

#include <cstdint>

#include "common/infer/weight_types.h"

struct __nv_bfloat16 {
  uint16_t bits;
};

inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  return {foretoken::BFloat16FromFloat(x)};
}
inline float __bfloat162float(__nv_bfloat16 x) {
  return foretoken::FloatFromBFloat16(x.bits);
}

#endif  // FORETOKEN_TESTS_SUPPORT_CUDA_ON_CPU_CUDA_BF16_H_
