// The warpgroup's instructions on a CPU, worked out from the PTX ISA's text
// ("mbarrier", "Asynchronous Warpgroup Level Matrix Multiply-Accumulate").
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_WARPGROUP_INSTRUCTIONS_CUH_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_WARPGROUP_INSTRUCTIONS_CUH_

#include <cstdint>
#include <cstring>

#include "common/infer/cuda/kernels/instructions.cuh"

#define FORETOKEN_WARPGROUPS 1

namespace foretoken::device {

inline void InitBarrier(uint32_t barrier, int arrivals) {
  cuda_on_cpu::InitBarrier(barrier, arrivals);
}
inline void ShowBarriers() {}
inline void Arrive(uint32_t barrier) {
  cuda_on_cpu::ArriveAtBarrier(barrier, 0);
}
inline void ArriveAndExpect(uint32_t barrier, int bytes) {
  cuda_on_cpu::ArriveAtBarrier(barrier, bytes);
}
inline void WaitBarrier(uint32_t barrier, uint32_t parity) {
  cuda_on_cpu::WaitAtBarrier(barrier, parity);
}
inline void BulkCopy(uint32_t shared, const void* global, int bytes,
                     uint32_t barrier) {
  cuda_on_cpu::AddBulkCopy(shared, global, bytes, barrier);
}

template <int kRegisters>
void KeepRegisters() {}
template <int kRegisters>
void TakeRegisters() {}

// An address and nothing else: what the bits mean is Wgmma's to know.
inline uint64_t DescribeRows(uint32_t shared) { return shared; }
inline void BeginProducts() {}
inline void CommitProducts() { cuda_on_cpu::CommitProductGroup(); }
template <int kPending>
void WaitProducts() {
  cuda_on_cpu::WaitProductGroups(kPending);
}
template <int kCount>
void KeepSums(float (&)[kCount]) {}

template <typename T, int kN>
struct Wgmma {
  // Each warp has 16 rows of a, as fragments of mma.m16n8k16, which d is made of
  // as well; column n of b is a row of 64 bytes, of which the 64-byte swizzle
  // exchanges units of 16 bytes by address bits 7 and 8.
  // Registers and shared memory are read when the product happens.
  static void Add(float (&d)[kN / 2], const uint4& a, uint64_t b) {
    cuda_on_cpu::AddProduct([&d, &a, b] { Perform(d, a, b); });
  }

 private:
  static void Perform(float (&d)[kN / 2], const uint4& a, uint64_t b) {
    const int lane = cuda_on_cpu::Lane();
    for (int tile = 0; tile < kN / 8; ++tile) {
      uint32_t own[2];
      for (int half = 0; half < 2; ++half) {
        uint32_t at = static_cast<uint32_t>(b) + tile * 512 + lane / 4 * 64 +
                      half * 16 + lane % 4 * 4;
        at ^= (at >> 7 & 3) << 4;
        std::memcpy(&own[half], cuda_on_cpu::SharedMemory() + at, 4);
      }
      float sums[4];
      std::memcpy(sums, &d[4 * tile], sizeof(sums));
      Mma<T>(sums, a, own[0], own[1]);
      std::memcpy(&d[4 * tile], sums, sizeof(sums));
    }
  }
};

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_WARPGROUP_INSTRUCTIONS_CUH_
