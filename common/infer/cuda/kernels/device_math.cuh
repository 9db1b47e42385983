// What the kernels ask of the instruction set: matrix instructions, copies to
// shared memory, conversions, sums in a warp or a thread block.
//
// The module is compiled with -fmad=false, so that a product and a sum are
// fused only where __fmaf_rn says so: every variant of a kernel rounds alike.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_DEVICE_MATH_CUH_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_DEVICE_MATH_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace foretoken {
namespace device {

inline constexpr unsigned kAllLanes = 0xffffffffu;

// c += a (16 x 16) * b (16 x 8). The type is that of the elements.
template <typename T>
__device__ __forceinline__ void Mma(float (&c)[4], const uint4& a, uint32_t b0,
                                    uint32_t b1);

template <>
__device__ __forceinline__ void Mma<__nv_bfloat16>(float (&c)[4],
                                                   const uint4& a, uint32_t b0,
                                                   uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void Mma<__half>(float (&c)[4], const uint4& a,
                                            uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

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

__device__ __forceinline__ uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// 16 bytes from global to shared memory, both aligned to 16. kStream: read once
// by this multiprocessor, so past L1; else L1 keeps them for its neighbours.
template <bool kStream>
__device__ __forceinline__ void CopyAsync(uint32_t shared, const void* global) {
  if constexpr (kStream) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(shared),
                 "l"(global)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;\n" ::"r"(shared),
                 "l"(global)
                 : "memory");
  }
}

// The same, or 16 zero bytes: then nothing is read.
__device__ __forceinline__ void CopyAsyncOrZero(uint32_t shared,
                                                const void* global, bool copy) {
  const int bytes = copy ? 16 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared),
               "l"(global), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}

// Until at most kPending groups of this thread's copies are under way.
template <int kPending>
__device__ __forceinline__ void WaitCopies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ void LoadMatricesTransposed(uint32_t (&r)[4],
                                                       uint32_t shared) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, "
      "[%4];\n"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
      : "r"(shared)
      : "memory");
}

// The next kernel of the stream may start, as far as it does not wait.
__device__ __forceinline__ void AllowNextKernel() {
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
}
// Until all kernels before this one are done and their writes are seen. Every
// kernel calls it before it reads or writes what another one writes; before it
// only weights may be read. As all do, "done" reaches back through the stream.
__device__ __forceinline__ void WaitForPreviousKernels() {
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
}

// The same bits in every lane: a + b is b + a.
__device__ __forceinline__ float WarpSum(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    x = x + __shfl_xor_sync(kAllLanes, x, offset);
  }
  return x;
}

// Of a block of kThreads; `shared` has room for kThreads / 32 floats and may be
// used again only after the next barrier.
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

}  // namespace device
}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_DEVICE_MATH_CUH_
