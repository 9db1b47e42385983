// Pure functions; thread-safe.
#ifndef FORETOKEN_COMMON_INFER_CUDA_STATUS_FROM_DEVICE_H_
#define FORETOKEN_COMMON_INFER_CUDA_STATUS_FROM_DEVICE_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/infer/cuda/device_engine.h"

namespace foretoken {

// `context` names the step: "upload of layer 3's query matrix".
absl::Status StatusFromDevice(const DeviceStatus& status,
                              absl::string_view context);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CUDA_STATUS_FROM_DEVICE_H_
