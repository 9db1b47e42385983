// How kernels are started: a stream, and whether a kernel may begin before the
// one ahead of it has ended (programmatic dependent launch, which begins with
// compute capability 9.0).
//
// The thread blocks of a kernel that may begin early are scheduled once all
// blocks of the kernel before it have started and leave room. It first reads
// data that no kernel of the pass writes, such as weights, and then waits for
// the kernels before it (WaitForPreviousKernels in instructions.cuh). At least
// one block of every kernel waits, so that its end implies theirs. A kernel
// that follows a copy or a memset must not begin early.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_LAUNCH_H_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_LAUNCH_H_

#include <cuda_runtime.h>

#include <utility>

#include "common/infer/cuda/kernels/launch_watch.h"

namespace foretoken::device {

// Loads a kernel (which a capture could not) and asks for its dynamic shared
// memory. All kernels want the same split of L1 and shared memory: a
// multiprocessor has to run empty before it can change it.
template <typename... Parameters>
cudaError_t PrepareKernel(void (*kernel)(Parameters...), int shared_bytes = 0) {
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
      cudaSharedmemCarveoutMaxShared);
  if (error != cudaSuccess || shared_bytes == 0) return error;
  return cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
}

struct Launcher {
  cudaStream_t stream = nullptr;
  bool overlap = true;  // allowed at all, and by the device
  bool first = true;    // the next kernel follows no kernel
  LaunchWatch* watch = nullptr;  // waits after each kernel, if there is one

  template <typename... Parameters, typename... Arguments>
  cudaError_t Run(void (*kernel)(Parameters...), dim3 grid, dim3 block,
                  size_t shared_bytes, Arguments&&... arguments) {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return cudaSuccess;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = overlap && !first ? 1 : 0;
    first = false;
    const cudaError_t error = cudaLaunchKernelEx(
        &config, kernel, std::forward<Arguments>(arguments)...);
    if (watch == nullptr) return error;
    return watch->Wait(error, reinterpret_cast<const void*>(kernel), config);
  }
};

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_LAUNCH_H_
