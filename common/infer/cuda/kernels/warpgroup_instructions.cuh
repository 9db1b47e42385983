// Hopper's instructions for a warpgroup, which is four warps from a multiple of
// four on: products out of shared memory, copies of whole pieces, barriers that
// count bytes. As instructions.cuh, inline PTX and nothing else.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_WARPGROUP_INSTRUCTIONS_CUH_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_WARPGROUP_INSTRUCTIONS_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

// 1 where the code is for 9.0a: else the kernels are left empty.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define FORETOKEN_WARPGROUPS 1
#else
#define FORETOKEN_WARPGROUPS 0
#endif

#if FORETOKEN_WARPGROUPS
namespace foretoken::device {

// --- barriers in shared memory, eight bytes each ------------------------------

// A phase ends when `arrivals` threads have arrived and the bytes that were
// expected have come.
__device__ __forceinline__ void InitBarrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier),
               "r"(arrivals)
               : "memory");
}
// By the thread that initialised, before the block's barrier.
__device__ __forceinline__ void ShowBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}
__device__ __forceinline__ void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier)
               : "memory");
}
__device__ __forceinline__ void ArriveAndExpect(uint32_t barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier),
      "r"(bytes)
      : "memory");
}
// Until the phase of that parity has ended: 0 for the first, then 1, 0 ...
__device__ __forceinline__ void WaitBarrier(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra gone;\n"
      "bra again;\n"
      "gone:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// `bytes`, a multiple of 16, from global to shared memory, both aligned to 16;
// counted by the barrier.
__device__ __forceinline__ void BulkCopy(uint32_t shared, const void* global,
                                         int bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1], %2, [%3];\n" ::"r"(shared),
      "l"(global), "r"(bytes), "r"(barrier)
      : "memory");
}

// Gives up registers, or waits for some that others gave up: what the warpgroup's
// threads have from here on.
template <int kRegisters>
__device__ __forceinline__ void KeepRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}

// --- products -----------------------------------------------------------------

// Describes B in shared memory: rows of 64 bytes (32 k), shuffled by the 64-byte
// swizzle, eight rows every 512 bytes. `shared` is aligned to 512 but for the k
// that is begun with.
__device__ __forceinline__ uint64_t DescribeRows(uint32_t shared) {
  constexpr uint64_t kSwizzle64 = uint64_t{2} << 62;
  constexpr uint64_t kEightRows = uint64_t{512 >> 4} << 32;
  constexpr uint64_t kUnused = uint64_t{1} << 16;
  return kSwizzle64 | kEightRows | kUnused | (shared & 0x3ffff) >> 4;
}

// Before the first product, and after other writes to its registers.
__device__ __forceinline__ void BeginProducts() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}
__device__ __forceinline__ void CommitProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
// Until at most kPending groups of products are under way.
template <int kPending>
__device__ __forceinline__ void WaitProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending)
               : "memory");
}
// Sums are neither read nor written from here to there by anything else.
template <int kCount>
__device__ __forceinline__ void KeepSums(float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

// d (64 x kN) += a (64 x 16, of the lanes' registers) * b (16 x kN). Element
// 4 j + i of a lane is element i of mma.m16n8k16's tile j.
template <typename T, int kN>
struct Wgmma;

#define FORETOKEN_D0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define FORETOKEN_D1 "%8, %9, %10, %11, %12, %13, %14, %15"
#define FORETOKEN_D2 "%16, %17, %18, %19, %20, %21, %22, %23"
#define FORETOKEN_D3 "%24, %25, %26, %27, %28, %29, %30, %31"
#define FORETOKEN_D4 "%32, %33, %34, %35, %36, %37, %38, %39"
#define FORETOKEN_D5 "%40, %41, %42, %43, %44, %45, %46, %47"
#define FORETOKEN_D6 "%48, %49, %50, %51, %52, %53, %54, %55"
#define FORETOKEN_D7 "%56, %57, %58, %59, %60, %61, %62, %63"
#define FORETOKEN_D8 "%64, %65, %66, %67, %68, %69, %70, %71"
#define FORETOKEN_D9 "%72, %73, %74, %75, %76, %77, %78, %79"
#define FORETOKEN_D10 "%80, %81, %82, %83, %84, %85, %86, %87"
#define FORETOKEN_D11 "%88, %89, %90, %91, %92, %93, %94, %95"
#define FORETOKEN_D12 "%96, %97, %98, %99, %100, %101, %102, %103"
#define FORETOKEN_D13 "%104, %105, %106, %107, %108, %109, %110, %111"
#define FORETOKEN_D14 "%112, %113, %114, %115, %116, %117, %118, %119"
#define FORETOKEN_D15 "%120, %121, %122, %123, %124, %125, %126, %127"
#define FORETOKEN_O8(d, i)                                            \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]),         \
      "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define FORETOKEN_TEXT_64 \
  FORETOKEN_D0 ", " FORETOKEN_D1 ", " FORETOKEN_D2 ", " FORETOKEN_D3 \
  "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 0;\n"
#define FORETOKEN_OPERANDS_64(d) \
  FORETOKEN_O8(d, 0), FORETOKEN_O8(d, 8), FORETOKEN_O8(d, 16), \
  FORETOKEN_O8(d, 24)
#define FORETOKEN_TEXT_72 \
  FORETOKEN_D0 ", " FORETOKEN_D1 ", " FORETOKEN_D2 ", " FORETOKEN_D3 \
  ", %32, %33, %34, %35" \
  "}, {%36, %37, %38, %39}, %40, 1, 1, 1, 0;\n"
#define FORETOKEN_OPERANDS_72(d) \
  FORETOKEN_O8(d, 0), FORETOKEN_O8(d, 8), FORETOKEN_O8(d, 16), \
  FORETOKEN_O8(d, 24), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35])
#define FORETOKEN_TEXT_128 \
  FORETOKEN_D0 ", " FORETOKEN_D1 ", " FORETOKEN_D2 ", " FORETOKEN_D3 \
  ", " FORETOKEN_D4 ", " FORETOKEN_D5 ", " FORETOKEN_D6 ", " FORETOKEN_D7 \
  "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 0;\n"
#define FORETOKEN_OPERANDS_128(d) \
  FORETOKEN_O8(d, 0), FORETOKEN_O8(d, 8), FORETOKEN_O8(d, 16), \
  FORETOKEN_O8(d, 24), FORETOKEN_O8(d, 32), FORETOKEN_O8(d, 40), \
  FORETOKEN_O8(d, 48), FORETOKEN_O8(d, 56)
#define FORETOKEN_TEXT_192 \
  FORETOKEN_D0 ", " FORETOKEN_D1 ", " FORETOKEN_D2 ", " FORETOKEN_D3 \
  ", " FORETOKEN_D4 ", " FORETOKEN_D5 ", " FORETOKEN_D6 ", " FORETOKEN_D7 \
  ", " FORETOKEN_D8 ", " FORETOKEN_D9 ", " FORETOKEN_D10 ", " FORETOKEN_D11 \
  "}, {%96, %97, %98, %99}, %100, 1, 1, 1, 0;\n"
#define FORETOKEN_OPERANDS_192(d) \
  FORETOKEN_O8(d, 0), FORETOKEN_O8(d, 8), FORETOKEN_O8(d, 16), \
  FORETOKEN_O8(d, 24), FORETOKEN_O8(d, 32), FORETOKEN_O8(d, 40), \
  FORETOKEN_O8(d, 48), FORETOKEN_O8(d, 56), FORETOKEN_O8(d, 64), \
  FORETOKEN_O8(d, 72), FORETOKEN_O8(d, 80), FORETOKEN_O8(d, 88)
#define FORETOKEN_TEXT_256 \
  FORETOKEN_D0 ", " FORETOKEN_D1 ", " FORETOKEN_D2 ", " FORETOKEN_D3 \
  ", " FORETOKEN_D4 ", " FORETOKEN_D5 ", " FORETOKEN_D6 ", " FORETOKEN_D7 \
  ", " FORETOKEN_D8 ", " FORETOKEN_D9 ", " FORETOKEN_D10 ", " FORETOKEN_D11 \
  ", " FORETOKEN_D12 ", " FORETOKEN_D13 ", " FORETOKEN_D14 ", " FORETOKEN_D15 \
  "}, {%128, %129, %130, %131}, %132, 1, 1, 1, 0;\n"
#define FORETOKEN_OPERANDS_256(d) \
  FORETOKEN_O8(d, 0), FORETOKEN_O8(d, 8), FORETOKEN_O8(d, 16), \
  FORETOKEN_O8(d, 24), FORETOKEN_O8(d, 32), FORETOKEN_O8(d, 40), \
  FORETOKEN_O8(d, 48), FORETOKEN_O8(d, 56), FORETOKEN_O8(d, 64), \
  FORETOKEN_O8(d, 72), FORETOKEN_O8(d, 80), FORETOKEN_O8(d, 88), \
  FORETOKEN_O8(d, 96), FORETOKEN_O8(d, 104), FORETOKEN_O8(d, 112), \
  FORETOKEN_O8(d, 120)

#define FORETOKEN_WGMMA_OF(N, T, TYPES)                                      \
  template <>                                                                \
  struct Wgmma<T, N> {                                                       \
    __device__ __forceinline__ static void Add(float (&d)[N / 2],            \
                                               const uint4& a, uint64_t b) { \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPES   \
                   " {" FORETOKEN_TEXT_##N                                   \
                   : FORETOKEN_OPERANDS_##N(d)                               \
                   : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b));        \
    }                                                                        \
  };
#define FORETOKEN_WGMMA(N)                        \
  FORETOKEN_WGMMA_OF(N, __nv_bfloat16, "bf16.bf16") \
  FORETOKEN_WGMMA_OF(N, __half, "f16.f16")
FORETOKEN_WGMMA(64)
FORETOKEN_WGMMA(72)
FORETOKEN_WGMMA(128)
FORETOKEN_WGMMA(192)
FORETOKEN_WGMMA(256)

#undef FORETOKEN_D0
#undef FORETOKEN_D1
#undef FORETOKEN_D2
#undef FORETOKEN_D3
#undef FORETOKEN_D4
#undef FORETOKEN_D5
#undef FORETOKEN_D6
#undef FORETOKEN_D7
#undef FORETOKEN_D8
#undef FORETOKEN_D9
#undef FORETOKEN_D10
#undef FORETOKEN_D11
#undef FORETOKEN_D12
#undef FORETOKEN_D13
#undef FORETOKEN_D14
#undef FORETOKEN_D15
#undef FORETOKEN_O8
#undef FORETOKEN_WGMMA
#undef FORETOKEN_WGMMA_OF
#undef FORETOKEN_TEXT_64
#undef FORETOKEN_OPERANDS_64
#undef FORETOKEN_TEXT_72
#undef FORETOKEN_OPERANDS_72
#undef FORETOKEN_TEXT_128
#undef FORETOKEN_OPERANDS_128
#undef FORETOKEN_TEXT_192
#undef FORETOKEN_OPERANDS_192
#undef FORETOKEN_TEXT_256
#undef FORETOKEN_OPERANDS_256

}  // namespace foretoken::device
#endif

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_WARPGROUP_INSTRUCTIONS_CUH_
