// Epilogues: from a product's sums to its results.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_GEMM_EPILOGUE_CUH_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_GEMM_EPILOGUE_CUH_

#include "common/infer/cuda/kernels/device_math.cuh"
#include "common/infer/cuda/kernels/gemm.h"

namespace foretoken::device {

// `gate`, `up`: sums; `feature`: of the feed-forward.
template <typename T>
__device__ __forceinline__ T SwiGlu(const GemmParams& p, int64_t feature,
                                    float gate, float up) {
  if (p.gate_bias != nullptr) {
    gate = gate + p.gate_bias[feature];
    up = up + p.up_bias[feature];
  }
  return Round<T>(gate / (1.0f + expf(-gate)) * up);
}

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_GEMM_EPILOGUE_CUH_
