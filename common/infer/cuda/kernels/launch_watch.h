// Waits after each kernel, so that one which fails or hangs can be named:
// FORETOKEN_CUDA_SYNC=1. Kernels then neither overlap nor run in graphs.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_LAUNCH_WATCH_H_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_LAUNCH_WATCH_H_

#include <cuda_runtime.h>

namespace foretoken::device {

class LaunchWatch {
 public:
  // Whether the environment asks for it.
  static bool Wanted();

  void BeginPass() { ++pass_, layer_ = -1; }
  void BeginLayer(int layer) { layer_ = layer; }

  // Waits for the kernel that `config` started with the result `launched`, ten
  // seconds at most: then cudaErrorLaunchTimeout. A first failure is described
  // in failure() and on stderr.
  cudaError_t Wait(cudaError_t launched, const void* kernel,
                   const cudaLaunchConfig_t& config);
  // "" while every kernel was well.
  const char* failure() const { return failure_; }
  // Whether it was one that did not end.
  bool hangs() const { return hangs_; }

 private:
  int pass_ = 0;
  int layer_ = -1;  // of the kernels now; -1: before the first, after the last
  bool hangs_ = false;
  char failure_[320] = {};
};

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_LAUNCH_WATCH_H_
