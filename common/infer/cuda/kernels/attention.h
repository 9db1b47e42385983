// Tree attention over paged KV: launchers. See attention_index.h for layouts
// and the order of blocks and chunks.
//
// Scores, softmax and sums are fp32; queries and weights are rounded to the
// type of K and V, as the matrix units take them.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_ATTENTION_H_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_ATTENTION_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "common/infer/cuda/kernels/attention_index.h"
#include "common/infer/cuda/kernels/device_support.h"
#include "common/infer/cuda/kernels/launch.h"
#include "common/infer/cuda/kernels/pass_layout.h"

namespace foretoken::device {

struct AttentionParams {
  const PassHeader* pass = nullptr;
  const float* queries = nullptr;  // [padded_rows][heads][padded_head_dim],
                                   // scaled by log2(e) / sqrt(head_dim)
  // Partial results of one slab, by PartialAt with `chunks`.
  float* partial_values = nullptr;
  float2* partial_sums = nullptr;  // maximum, sum of weights
  void* out = nullptr;             // activations, k = head * head_dim + d
  KvMemory kv;
  int64_t padded_rows = 0;
  int32_t heads = 0, head_dim = 0, group = 1, layer = 0;
  int32_t chunks = 0;  // at least those of the longest row
  // The slab: tasks that begin at these queries of the pass.
  int32_t first_query = 0, slab_queries = 0;
};

// Once per process and device, before the first pass.
cudaError_t PrepareAttention(const DeviceLimits& device);

// One slab: partial results of every chunk, then their sum. `rows`: at least
// those of the pass.
cudaError_t LaunchAttention(DeviceType type, const AttentionParams& params,
                            int rows, const AttentionTiling& tiling,
                            Launcher& launcher);

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_ATTENTION_H_
