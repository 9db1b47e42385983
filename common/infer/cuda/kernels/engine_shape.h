// Sizes of one engine's buffers and matrices, worked out once from the model's
// shape. A plain value; thread-compatible.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_ENGINE_SHAPE_H_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_ENGINE_SHAPE_H_

#include <cstdint>

#include "common/infer/cuda/device_engine.h"
#include "common/infer/cuda/kernels/attention_index.h"
#include "common/infer/cuda/kernels/gemm_index.h"

namespace foretoken::device {

// One packed matrix: [features][k], both padded.
struct MatrixShape {
  int64_t features = 0, k = 0;  // padded
  int groups = 1;               // of K
  int64_t elements() const { return features * k; }
  int64_t blocks() const { return features / kGemmFeatures; }
};

inline MatrixShape MakeMatrix(int64_t features, int64_t k, bool grouped) {
  MatrixShape matrix;
  matrix.features = PaddedFeatures(features);
  matrix.k = PaddedK(k);
  matrix.groups = grouped ? GemmGroups(matrix.features, matrix.k) : 1;
  return matrix;
}

struct EngineShape {
  // UNIMPLEMENTED names what has no kernel, INVALID_ARGUMENT a bad option.
  static DeviceStatus Create(const DeviceShape& shape,
                             const DeviceOptions& options, EngineShape* out);

  DeviceShape model;
  DeviceType type = DeviceType::kBFloat16;
  int32_t max_rows = 0, max_sessions = 0;
  int64_t padded_rows = 0;  // of every buffer by row
  int32_t group = 1;        // heads that share a kv head
  int32_t padded_head_dim = 0;
  int32_t width = 0;  // d_model, padded: of the residual stream
  // The sums of the first three's groups are added by the kernel that reads
  // them; gate_up and head end in their own epilogues and have one group.
  MatrixShape qkv, attention_output, down, gate_up, head;
  int32_t max_blocks = 0, max_chunks = 0;  // of one context
  int64_t partial_vectors = 0;  // partial results of attention, in vectors
  int64_t scratch_pages = 0;

  // KV pages where the options name no number (DeviceOptions::pages), of a
  // device with `free_bytes`; below 1 if there is no room for one.
  int64_t DefaultPages(int64_t free_bytes, const DeviceOptions& options) const;

  int64_t qkv_features() const {
    return int64_t{model.head_dim} * (model.heads + 2 * model.kv_heads);
  }
  int64_t page_bytes() const {  // K and V, all layers
    return int64_t{2} * 2 * model.layers * model.kv_heads * kDevicePageTokens *
           padded_head_dim;
  }
  // Floats of the partial sums of any grouped product.
  int64_t partial_sums() const;
  // Queries of a slab (attention_index.h) of a pass of `chunks` chunks: a power
  // of two, as the tiers of a pass are.
  int32_t SlabQueries(int chunks) const;
  // Bytes of weights that a pass reads.
  int64_t weight_bytes() const;
};

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_ENGINE_SHAPE_H_
