// Products over many rows by wgmma, for compute capability 9.0: the same sums
// as the other tiles of gemm.h, which starts these.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_GEMM_WIDE_H_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_GEMM_WIDE_H_

#include "common/infer/cuda/kernels/gemm.h"

namespace foretoken::device {

cudaError_t PrepareWideGemm();
cudaError_t LaunchWideGemm(GemmEpilogue epilogue, DeviceType type,
                           const GemmParams& params, int rows,
                           const DeviceLimits& device, Launcher& launcher);

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_GEMM_WIDE_H_
