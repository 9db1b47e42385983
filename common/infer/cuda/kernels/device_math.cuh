// Conversions and sums that the kernels share.
//
// The module is compiled with -fmad=false, so that a product and a sum are
// fused only where __fmaf_rn says so: every variant of a kernel rounds alike.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_DEVICE_MATH_CUH_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_DEVICE_MATH_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/infer/cuda/kernels/instructions.cuh"

namespace foretoken::device {

inline constexpr unsigned kAllLanes = 0xffffffffu;

// Rounded to the nearest, ties to even.
template <typename T>
__device__ __forceinline__ T Round(float x);
template <>
__device__ __forceinline__ __nv_bfloat16 Round<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ __forceinline__ __half Round<__half>(float x) {
  return __float2half_rn(x);
}

__device__ __forceinline__ float Widen(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ __forceinline__ float Widen(__half x) { return __half2float(x); }

template <typename T>
__device__ __forceinline__ uint32_t PackPair(T low, T high) {
  return static_cast<uint32_t>(__builtin_bit_cast(uint16_t, low)) |
         static_cast<uint32_t>(__builtin_bit_cast(uint16_t, high)) << 16;
}

// The largest finite number of a type.
template <typename T>
__device__ __forceinline__ float LargestFinite();
template <>
__device__ __forceinline__ float LargestFinite<__nv_bfloat16>() {
  return 3.38953138925153547590e38f;
}
template <>
__device__ __forceinline__ float LargestFinite<__half>() {
  return 65504.0f;
}

// The same bits in every lane: a + b is b + a.
__device__ __forceinline__ float WarpSum(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    x = x + __shfl_xor_sync(kAllLanes, x, offset);
  }
  return x;
}

// Sum over a block of kThreads; `shared` has room for kThreads / 32 floats and
// may be used again only after the next barrier.
template <int kThreads>
__device__ __forceinline__ float BlockSum(float x, float* shared) {
  x = WarpSum(x);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kThreads / 32; ++i) sum = sum + shared[i];
  return sum;
}

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_DEVICE_MATH_CUH_
