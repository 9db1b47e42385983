// The instructions of the module's file of this name, on a CPU. Fragments are
// laid out as the PTX ISA says ("Matrix Fragments for mma.m16n8k16",
// "ldmatrix"), worked out here from its text and from nothing of the kernels'.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_INSTRUCTIONS_CUH_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_INSTRUCTIONS_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace foretoken::device {

inline float EmulatedValue(__nv_bfloat16 x) { return __bfloat162float(x); }
inline float EmulatedValue(__half x) { return __half2float(x); }

// Element 0 or 1 of a register.
template <typename T>
float EmulatedElement(uint32_t reg, int i) {
  return EmulatedValue(T{static_cast<uint16_t>(reg >> 16 * i)});
}

// d[row][column] += sum over k of a[row][k] * b[k][column]. The order and
// rounding of the sum are not the hardware's, but one and the same everywhere.
template <typename T>
void Mma(float (&c)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  struct Payload {
    uint32_t a[4], b[2];
  };
  const Payload own = {{a.x, a.y, a.z, a.w}, {b0, b1}};
  const auto& all = cuda_on_cpu::MeetWarp("mma", &own, sizeof(own));
  const int lane = cuda_on_cpu::Lane();
  float row_a[2][16], column_b[2][16];
  for (int k = 0; k < 16; ++k) {
    // a: column k is held by thread (k % 8) / 2 of the row's group.
    const auto pa = cuda_on_cpu::OfLane<Payload>(all, lane / 4 * 4 + k % 8 / 2);
    for (int h = 0; h < 2; ++h) {
      row_a[h][k] = EmulatedElement<T>(pa.a[h + k / 8 * 2], k % 2);
      // b: row k of column n is held by thread (k % 8) / 2 of group n.
      const int column = lane % 4 * 2 + h;
      const auto pb = cuda_on_cpu::OfLane<Payload>(all, column * 4 + k % 8 / 2);
      column_b[h][k] = EmulatedElement<T>(pb.b[k / 8], k % 2);
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < 16; ++k) {
      c[i] += row_a[i / 2][k] * column_b[i % 2][k];
    }
  }
}

inline char* DynamicShared() { return cuda_on_cpu::SharedMemory(); }
template <typename T>
T& StaticShared() {
  return *static_cast<T*>(cuda_on_cpu::StaticShared(sizeof(T)));
}
inline uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(static_cast<const char*>(p) -
                               cuda_on_cpu::SharedMemory());
}

template <bool kStream>
void CopyAsync(uint32_t shared, const void* global) {
  cuda_on_cpu::AddCopy(shared, global);
}
inline void CopyAsyncOrZero(uint32_t shared, const void* global, bool copy) {
  cuda_on_cpu::AddCopy(shared, copy ? global : nullptr);
}
inline void CommitCopies() { cuda_on_cpu::CommitCopyGroup(); }
template <int kPending>
void WaitCopies() {
  cuda_on_cpu::WaitCopyGroups(kPending);
}

// Reads nothing, but of memory that there is.
inline constexpr int kL2LineBytes = 128;
inline void PrefetchToL2(const void* global) {
  if (!cuda_on_cpu::IsDeviceMemory(global, kL2LineBytes)) std::abort();
}

// Lane 8 i + r gives the address of row r of matrix i; a lane gets the two
// neighbours of row lane / 4, columns 2 (lane % 4) and one more.
inline void LoadMatrices(uint32_t (&r)[4], uint32_t shared) {
  const auto& all = cuda_on_cpu::MeetWarp("ldmatrix", &shared, sizeof(shared));
  const int lane = cuda_on_cpu::Lane();
  for (int i = 0; i < 4; ++i) {
    const auto row = cuda_on_cpu::OfLane<uint32_t>(all, 8 * i + lane / 4);
    std::memcpy(&r[i], cuda_on_cpu::SharedMemory() + row + lane % 4 * 4, 4);
  }
}

// Transposed, it gets those of column lane / 4, rows 2 (lane % 4) and one more.
inline void LoadMatricesTransposed(uint32_t (&r)[4], uint32_t shared) {
  const auto& all = cuda_on_cpu::MeetWarp("ldmatrix", &shared, sizeof(shared));
  const int lane = cuda_on_cpu::Lane();
  for (int i = 0; i < 4; ++i) {
    r[i] = 0;
    for (int j = 0; j < 2; ++j) {
      const auto row =
          cuda_on_cpu::OfLane<uint32_t>(all, 8 * i + lane % 4 * 2 + j);
      uint16_t element;
      std::memcpy(&element, cuda_on_cpu::SharedMemory() + row + lane / 4 * 2,
                  2);
      r[i] |= static_cast<uint32_t>(element) << 16 * j;
    }
  }
}

// (A kernel may begin early as soon as those ahead of it have begun.)
inline void AllowNextKernel() {}
inline void WaitForPreviousKernels() { cuda_on_cpu::WaitForGridsAhead(); }

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_INSTRUCTIONS_CUH_
