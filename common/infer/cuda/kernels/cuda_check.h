// CUDA calls, checked; device and pinned memory that frees itself. The one
// place where CUDA's errors become a DeviceStatus. Owned by one thread.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_CUDA_CHECK_H_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_CUDA_CHECK_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "common/infer/cuda/kernels/device_status.h"

namespace foretoken::device {

// `call` names the operation. Out of memory is RESOURCE_EXHAUSTED and leaves
// the context usable; an error of a kernel stays (CUDA's sticky errors), so
// every later call reports it as well.
inline DeviceStatus CheckCuda(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return DeviceStatus();
  // Clears what is not sticky: the next launch must not report it again.
  (void)cudaGetLastError();
  int code = kInternal;
  if (error == cudaErrorMemoryAllocation) code = kResourceExhausted;
  // A busy device is not unavailable.
  if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver ||
      error == cudaErrorInvalidDevice) {
    code = kUnavailable;
  }
  return MakeStatus(code, "%s: %s (%s)", call, cudaGetErrorName(error),
                    cudaGetErrorString(error));
}

#define FORETOKEN_CUDA_RETURN_IF_ERROR(expression, call) \
  FORETOKEN_DEVICE_RETURN_IF_ERROR(                      \
      ::foretoken::device::CheckCuda((expression), (call)))

// Device memory (kPinned: host memory that the device copies from directly).
// Nothing here waits for the device or uses the default stream: another engine
// of the process may be capturing a graph.
template <bool kPinned>
class Memory {
 public:
  Memory() = default;
  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Memory() { Free(); }

  // Replaces the memory held, which must not be in use any more.
  DeviceStatus Allocate(int64_t bytes, const char* what) requires(kPinned) {
    Free();
    if (bytes < 16) bytes = 16;
    FORETOKEN_CUDA_RETURN_IF_ERROR(cudaMallocHost(&data_, bytes), what);
    bytes_ = bytes;
    return DeviceStatus();
  }
  // Device memory is zeroed, on `stream`, before what follows there: padding
  // stays zero, and nothing is ever read that was not written.
  DeviceStatus Allocate(int64_t bytes, const char* what,
                        cudaStream_t stream) requires(!kPinned) {
    Free();
    if (bytes < 16) bytes = 16;
    FORETOKEN_CUDA_RETURN_IF_ERROR(cudaMalloc(&data_, bytes), what);
    bytes_ = bytes;
    return CheckCuda(cudaMemsetAsync(data_, 0, bytes, stream), what);
  }

  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  int64_t bytes() const { return bytes_; }

 private:
  void Free() {
    if (data_ == nullptr) return;
    // Nothing can be done about an error here; a sticky one is reported by the
    // next call that matters.
    if constexpr (kPinned) {
      (void)cudaFreeHost(data_);
    } else {
      (void)cudaFree(data_);
    }
    data_ = nullptr;
    bytes_ = 0;
  }

  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

using DeviceMemory = Memory<false>;
using PinnedMemory = Memory<true>;

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_CUDA_CHECK_H_
