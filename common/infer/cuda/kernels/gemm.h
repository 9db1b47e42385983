// Matrix products over rows: launchers. See gemm_index.h for layouts and the
// order of sums. CUDA types and scalars only; each call is asynchronous on the
// launcher's stream and answers the launch's error.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_GEMM_H_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_GEMM_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "common/infer/cuda/kernels/device_support.h"
#include "common/infer/cuda/kernels/engine_shape.h"
#include "common/infer/cuda/kernels/launch.h"

namespace foretoken::device {

// Use of a sum over a group of K.
enum class GemmEpilogue {
  // fp32 partial sums [group][padded_rows][features], for a kernel that adds
  // groups, bias and residual.
  kPartial,
  // silu(gate + gate_bias) * (up + up_bias), rounded, as activations.
  kSwiGlu,
  // fp32 [row][features].
  kLogits,
};

struct GemmParams {
  const void* weights = nullptr;  // packed
  const void* x = nullptr;        // activations of `padded_rows` rows
  void* out = nullptr;
  const float* gate_bias = nullptr;  // kSwiGlu; nullptr: none. Padded to
  const float* up_bias = nullptr;    // features / 2
  const int32_t* rows = nullptr;     // device memory: how many there are
  int64_t padded_rows = 0;
  int64_t features = 0, k = 0;  // padded
  int32_t groups = 1;
};

// How many groups of K kPartial leaves to be added: the matrix's, or one where
// the product adds them itself. `rows`: LaunchGemm's.
int GroupsWritten(const MatrixShape& matrix, int rows,
                  const DeviceLimits& device);

// Once per process and device, before the first product.
cudaError_t PrepareGemm(const DeviceLimits& device);

// `rows`: at least *params.rows.
cudaError_t LaunchGemm(GemmEpilogue epilogue, DeviceType type,
                       const GemmParams& params, int rows,
                       const DeviceLimits& device, Launcher& launcher);

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_GEMM_H_
