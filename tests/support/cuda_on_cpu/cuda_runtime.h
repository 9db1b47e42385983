// CUDA's runtime and device language as far as the GPU module uses them, over
// machine.h. Found in the place of the real header when the module's sources
// are compiled for tests on a CPU.
#ifndef FORETOKEN_TESTS_SUPPORT_CUDA_ON_CPU_CUDA_RUNTIME_H_
#define FORETOKEN_TESTS_SUPPORT_CUDA_ON_CPU_CUDA_RUNTIME_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/support/cuda_on_cpu/device.h"
#include "tests/support/cuda_on_cpu/machine.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define CUDART_VERSION 0
#define threadIdx (::foretoken::cuda_on_cpu::ThreadIndex())

// (References: the launch's parameters have members of these names.)
inline const ::foretoken::cuda_on_cpu::Index& blockIdx =
    ::foretoken::cuda_on_cpu::BlockIndex();
inline const ::foretoken::cuda_on_cpu::Index& gridDim =
    ::foretoken::cuda_on_cpu::GridSize();

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
  return {x, y, z, w};
}
struct dim3 {
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)
      : x(x_), y(y_), z(z_) {}
  unsigned x, y, z;
};

// Device functions.
using std::max;
using std::min;
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline int __ffs(unsigned x) { return __builtin_ffs(static_cast<int>(x)); }
inline float __int_as_float(int bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}
inline void __syncthreads() { ::foretoken::cuda_on_cpu::MeetBlock(); }
inline void __syncwarp() {
  ::foretoken::cuda_on_cpu::MeetWarp("syncwarp", nullptr, 0);
}
inline unsigned atomicAdd(unsigned* at, unsigned n) {
  const unsigned old = *at;
  *at += n;
  return old;
}

namespace foretoken::cuda_on_cpu {

template <typename T>
T OfLane(const WarpPayloads& payloads, int lane) {
  T value;
  std::memcpy(&value, payloads[lane].data(), sizeof(T));
  return value;
}

}  // namespace foretoken::cuda_on_cpu

template <typename T>
T __shfl_sync(unsigned, T x, int lane) {
  const auto& all = ::foretoken::cuda_on_cpu::MeetWarp("shfl", &x, sizeof(x));
  return ::foretoken::cuda_on_cpu::OfLane<T>(all, lane & 31);
}
template <typename T>
T __shfl_xor_sync(unsigned, T x, int mask) {
  const auto& all =
      ::foretoken::cuda_on_cpu::MeetWarp("shfl_xor", &x, sizeof(x));
  return ::foretoken::cuda_on_cpu::OfLane<T>(
      all, ::foretoken::cuda_on_cpu::Lane() ^ mask);
}
template <typename T>
T __shfl_up_sync(unsigned, T x, int delta) {
  const auto& all =
      ::foretoken::cuda_on_cpu::MeetWarp("shfl_up", &x, sizeof(x));
  const int lane = ::foretoken::cuda_on_cpu::Lane();
  return ::foretoken::cuda_on_cpu::OfLane<T>(
      all, lane < delta ? lane : lane - delta);
}
inline unsigned __ballot_sync(unsigned, bool x) {
  const auto& all = ::foretoken::cuda_on_cpu::MeetWarp("ballot", &x, sizeof(x));
  unsigned votes = 0;
  for (int lane = 0; lane < 32; ++lane) {
    if (::foretoken::cuda_on_cpu::OfLane<bool>(all, lane)) votes |= 1u << lane;
  }
  return votes;
}
inline int __reduce_max_sync(unsigned, int x) {
  const auto& all =
      ::foretoken::cuda_on_cpu::MeetWarp("reduce_max", &x, sizeof(x));
  int most = x;
  for (int lane = 0; lane < 32; ++lane) {
    most = std::max(most, ::foretoken::cuda_on_cpu::OfLane<int>(all, lane));
  }
  return most;
}

// The runtime. It has nothing that waits for the whole device and no default
// stream: the module must not use them, as another engine may be capturing.
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchTimeout = 702,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize,
  cudaFuncAttributePreferredSharedMemoryCarveout,
};
inline constexpr int cudaSharedmemCarveoutMaxShared = 100;
enum cudaLaunchAttributeID {
  cudaLaunchAttributeProgrammaticStreamSerialization
};
inline constexpr unsigned cudaStreamNonBlocking = 1;

struct CudaGraph {
  std::vector<::foretoken::cuda_on_cpu::Grid> kernels;
};
using cudaGraph_t = CudaGraph*;
using cudaGraphExec_t = CudaGraph*;
struct CudaStream {
  CudaGraph* capture = nullptr;
};
using cudaStream_t = CudaStream*;
using cudaEvent_t = int*;
struct cudaDeviceProp {
  char name[256];
  int major, minor, multiProcessorCount;
  size_t sharedMemPerBlockOptin, totalGlobalMem;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaMalloc(void** p, size_t bytes);
cudaError_t cudaFree(void* p);
cudaError_t cudaMallocHost(void** p, size_t bytes);
cudaError_t cudaFreeHost(void* p);
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes,
                            cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaFuncGetName(const char** name, const void* kernel);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph,
                                 unsigned flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaFuncSetAttribute(const void* kernel,
                                 cudaFuncAttribute attribute, int value);
template <typename... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...),
                                 cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute,
                              value);
}

namespace foretoken::cuda_on_cpu {

// Whether the device and the kernel's attributes allow the launch.
cudaError_t CheckLaunch(const cudaLaunchConfig_t& config, const void* kernel);

}  // namespace foretoken::cuda_on_cpu

// Parameters are copied at the launch, as on a device.
template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config,
                               void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  namespace machine = ::foretoken::cuda_on_cpu;
  const cudaError_t error =
      machine::CheckLaunch(*config, reinterpret_cast<const void*>(kernel));
  if (error != cudaSuccess) return error;
  const std::tuple<std::remove_cv_t<Parameters>...> bound(arguments...);
  machine::Grid grid;
  grid.size = {config->gridDim.x, config->gridDim.y, config->gridDim.z};
  grid.block = {config->blockDim.x, config->blockDim.y, config->blockDim.z};
  grid.shared_bytes = config->dynamicSmemBytes;
  grid.early = config->numAttrs > 0;
  grid.thread = [kernel, bound] { std::apply(kernel, bound); };
  if (config->stream->capture != nullptr) {
    config->stream->capture->kernels.push_back(std::move(grid));
  } else {
    machine::Launch(std::move(grid));
    machine::CountLaunch();
  }
  return cudaSuccess;
}

#endif  // FORETOKEN_TESTS_SUPPORT_CUDA_ON_CPU_CUDA_RUNTIME_H_
