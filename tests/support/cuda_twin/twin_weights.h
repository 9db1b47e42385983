// The device twin's weights, each matrix by way of the device's packed layout.
//
// Thread-compatible.
#ifndef FORETOKEN_TESTS_SUPPORT_CUDA_TWIN_TWIN_WEIGHTS_H_
#define FORETOKEN_TESTS_SUPPORT_CUDA_TWIN_TWIN_WEIGHTS_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "common/infer/cuda/device_engine.h"

namespace foretoken::twin {

struct TensorSize {
  int64_t rows = 0;  // 0: the model has no such tensor
  int64_t cols = 0;
  bool matrix = false;  // in the weights' type; else fp32
};

TensorSize SizeOf(const DeviceShape& shape, DeviceTensor tensor);

class TwinWeights {
 public:
  TwinWeights(const DeviceShape& shape, DeviceType type)
      : shape_(shape), type_(type) {}

  // See DeviceEngine::Upload.
  DeviceStatus Add(DeviceTensor tensor, int32_t layer, const void* data,
                   int64_t rows, int64_t cols);
  // INTERNAL names a tensor that is missing.
  DeviceStatus CheckComplete() const;

  // A vector, or the embedding by token. Empty where the model has none.
  const std::vector<float>& Rows(DeviceTensor tensor, int32_t layer) const;
  // [cols][rows] of a matrix that products take; it must be there.
  const std::vector<float>& Matrix(DeviceTensor tensor, int32_t layer) const {
    return matrices_.at({tensor, layer});
  }

 private:
  using Place = std::pair<DeviceTensor, int32_t>;

  const DeviceShape shape_;
  const DeviceType type_;
  std::map<Place, std::vector<float>> rows_;
  std::map<Place, std::vector<float>> matrices_;
  const std::vector<float> none_;
};

}  // namespace foretoken::twin

#endif  // FORETOKEN_TESTS_SUPPORT_CUDA_TWIN_TWIN_WEIGHTS_H_
