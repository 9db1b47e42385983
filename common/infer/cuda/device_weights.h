// A checkpoint's weights on their way to a device engine.
//
// Pure functions; thread-safe.
#ifndef FORETOKEN_COMMON_INFER_CUDA_DEVICE_WEIGHTS_H_
#define FORETOKEN_COMMON_INFER_CUDA_DEVICE_WEIGHTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/infer/cuda/device_engine.h"
#include "common/infer/model_config.h"
#include "common/infer/model_weights.h"

namespace foretoken {

DeviceShape ShapeForDevice(const ModelConfig& config);

// fp16 where every matrix is fp16, else bf16: what is stored in another type is
// rounded to it.
DeviceType TypeForDevice(const ModelWeights& weights);

// "bf16" or "fp16".
const char* DeviceTypeName(DeviceType type);

// K and V of one page, all layers.
int64_t DevicePageBytes(const ModelConfig& config);

// Cosines and sines, [max_positions][head_dim / 2]. The host's libm computes
// them, so that another host may have other bits.
struct RotaryTable {
  std::vector<float> cosines, sines;
  std::string Digest() const;  // of the bits
};
RotaryTable MakeRotaryTable(const ModelConfig& config);

// Every tensor, one at a time (host memory for one of them at most, and for
// none where the stored type is the device's), then the rotary table.
absl::Status UploadWeights(const ModelWeights& weights, DeviceType type,
                           const RotaryTable& rotary, DeviceEngine& engine);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CUDA_DEVICE_WEIGHTS_H_
