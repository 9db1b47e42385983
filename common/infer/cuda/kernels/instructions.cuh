// The instructions that C++ has no word for: matrix units, copies to shared
// memory, dependent launches. Inline PTX and nothing else, so that the kernels
// can also be compiled over a version of this file that runs on a CPU.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_INSTRUCTIONS_CUH_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_INSTRUCTIONS_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace foretoken::device {

// c += a (16 x 16) * b (16 x 8). The type is that of the elements.
template <typename T>
__device__ __forceinline__ void Mma(float (&c)[4], const uint4& a, uint32_t b0,
                                    uint32_t b1);

template <>
__device__ __forceinline__ void Mma<__nv_bfloat16>(float (&c)[4],
                                                   const uint4& a, uint32_t b0,
                                                   uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void Mma<__half>(float (&c)[4], const uint4& a,
                                            uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

// The shared memory that the launch asked for.
__device__ __forceinline__ char* DynamicShared() {
  extern __shared__ __align__(1024) char dynamic_shared[];
  return dynamic_shared;
}

// The shared memory that a kernel declares: one T.
template <typename T>
__device__ __forceinline__ T& StaticShared() {
  __shared__ T shared;
  return shared;
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

// Asks for a line of global memory into L2. A hint: nothing waits for it.
inline constexpr int kL2LineBytes = 128;
__device__ __forceinline__ void PrefetchToL2(const void* global) {
  asm volatile("prefetch.global.L2 [%0];\n" ::"l"(global));
}

__device__ __forceinline__ void LoadMatrices(uint32_t (&r)[4],
                                             uint32_t shared) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
      : "r"(shared)
      : "memory");
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

// The next kernel of the stream may start, as far as it does not wait. Before
// compute capability 9.0 kernels of a stream never overlap (Launcher does not
// ask for it), so that there is nothing to allow and nothing to wait for.
__device__ __forceinline__ void AllowNextKernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}
// Until all kernels before this one are done and their writes are seen. Every
// kernel calls it before it reads or writes what another one writes. Before it
// only what no kernel of a pass writes may be read: weights, the pass's arrays,
// full pages of KV. As all do, "done" reaches back through the stream.
__device__ __forceinline__ void WaitForPreviousKernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_INSTRUCTIONS_CUH_
