// A model's weights on the device: matrices packed for the matrix product as
// they arrive, vectors padded with zeros. Owned by one thread.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_WEIGHT_STORE_H_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_WEIGHT_STORE_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "common/infer/cuda/kernels/cuda_check.h"
#include "common/infer/cuda/kernels/engine_shape.h"

namespace foretoken::device {

// Device memory; nullptr for what the model does not have.
struct LayerPointers {
  void *qkv = nullptr, *attention_output = nullptr, *gate_up = nullptr,
       *down = nullptr;
  float *attention_norm = nullptr, *ffn_norm = nullptr;
  float *qkv_bias = nullptr, *output_bias = nullptr, *gate_bias = nullptr,
        *up_bias = nullptr, *down_bias = nullptr;
  float *query_norm = nullptr, *key_norm = nullptr;
};

class WeightStore {
 public:
  // Allocates all memory in one piece, zeroed on `stream`.
  DeviceStatus Create(const EngineShape& shape, cudaStream_t stream);

  // INTERNAL for a tensor that the shape does not have, or of another size. The
  // copy is complete on return.
  DeviceStatus Upload(DeviceTensor tensor, int32_t layer, const void* data,
                      int64_t rows, int64_t cols, cudaStream_t stream);
  // INTERNAL names the first missing tensor. Stores the rotary table and frees
  // the memory that only uploads need.
  DeviceStatus Finish(const float* cosines, const float* sines,
                      cudaStream_t stream);

  const LayerPointers& layer(int i) const { return layers_[i]; }
  const void* embedding() const { return embedding_; }  // [vocab][d_model]
  const void* head() const { return head_; }
  const float* final_norm() const { return final_norm_; }
  const float* cosines() const { return cosines_; }
  const float* sines() const { return sines_; }

 private:
  // Where a tensor goes.
  struct Target {
    void* data = nullptr;  // nullptr: the model has no such tensor
    int64_t rows = 0, cols = 0;
    bool vector = false;                  // fp32, rows is 1
    const MatrixShape* packed = nullptr;  // nullptr: stored as uploaded
    int64_t first_feature = 0;            // mode 0
    int32_t mode = 0;                     // of PackedFeature
    bool arrived = false;
  };

  // Gives every tensor its place after `base`; nullptr: only counts the bytes.
  void Place(char* base, int64_t* bytes);
  Target& TargetOf(DeviceTensor tensor, int32_t layer) {
    return targets_[static_cast<int64_t>(tensor) * shape_.model.layers + layer];
  }
  DeviceStatus UploadMatrix(const Target& target, const void* data,
                            cudaStream_t stream);
  DeviceStatus Pack(const Target& target, const void* rows, int64_t first_row,
                    int64_t count, cudaStream_t stream) const;

  EngineShape shape_;
  DeviceMemory memory_;
  DeviceMemory staging_;  // rows of a matrix as they arrive
  std::vector<LayerPointers> layers_;
  std::vector<Target> targets_;  // [tensor * layers + layer]
  void *embedding_ = nullptr, *head_ = nullptr;
  float *final_norm_ = nullptr, *cosines_ = nullptr, *sines_ = nullptr;
};

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_WEIGHT_STORE_H_
