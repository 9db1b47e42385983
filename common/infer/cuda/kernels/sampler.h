// The token of each output row: launcher. What is drawn is defined, to the bit,
// by common/sampling/sampler.h.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_SAMPLER_H_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_SAMPLER_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "common/infer/cuda/kernels/launch.h"
#include "common/infer/cuda/kernels/pass_layout.h"

namespace foretoken::device {

struct SamplerParams {
  const PassHeader* pass = nullptr;
  // [outputs][stride]. Penalties, bias and bans are put on for the draw and
  // taken off again, bit for bit.
  float* logits = nullptr;
  float* saved = nullptr;  // by PassHeader::saved
  DeviceToken* tokens = nullptr;
  int64_t stride = 0;  // a multiple of 4
  int32_t vocab = 0;
};

// Once per process and device, before the first pass.
cudaError_t PrepareSampler();

// One thread block an output; `outputs`: at least the pass's.
cudaError_t LaunchSampler(const SamplerParams& params, int outputs,
                          Launcher& launcher);

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_SAMPLER_H_
