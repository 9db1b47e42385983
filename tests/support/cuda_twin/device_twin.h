// The device engine's twin: the same slots, tiles, orders and walks on the CPU,
// written to be read. It is what the CUDA backend runs on in tests, and the
// definition that the kernels' results are compared with.
//
// Owned by one thread.
#ifndef FORETOKEN_TESTS_SUPPORT_CUDA_TWIN_DEVICE_TWIN_H_
#define FORETOKEN_TESTS_SUPPORT_CUDA_TWIN_DEVICE_TWIN_H_

#include "absl/status/statusor.h"
#include "common/infer/cuda/cuda_backend.h"
#include "common/infer/cuda/device_engine.h"

namespace foretoken {

// Its "memory": KV of more than this is RESOURCE_EXHAUSTED.
inline constexpr int64_t kDeviceTwinKvBytes = int64_t{1} << 30;

absl::StatusOr<DeviceEnginePtr> MakeDeviceTwin(const DeviceShape& shape,
                                               const DeviceOptions& options);

}  // namespace foretoken

#endif  // FORETOKEN_TESTS_SUPPORT_CUDA_TWIN_DEVICE_TWIN_H_
