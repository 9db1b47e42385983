// Makes DeviceStatus values; plain host code. Thread-safe.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_DEVICE_STATUS_H_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_DEVICE_STATUS_H_

#include <cstdarg>
#include <cstdio>

#include "common/infer/cuda/device_engine.h"

namespace foretoken::device {

// The codes of absl::StatusCode that the module uses.
inline constexpr int kInvalidArgument = 3;
inline constexpr int kResourceExhausted = 8;
inline constexpr int kFailedPrecondition = 9;
inline constexpr int kUnimplemented = 12;
inline constexpr int kInternal = 13;
inline constexpr int kUnavailable = 14;

[[gnu::format(printf, 2, 3)]] inline DeviceStatus MakeStatus(int code,
                                                             const char* format,
                                                             ...) {
  DeviceStatus status;
  status.code = code;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(status.message, sizeof(status.message), format, arguments);
  va_end(arguments);
  return status;
}

#define FORETOKEN_DEVICE_RETURN_IF_ERROR(expression)             \
  do {                                                           \
    const ::foretoken::DeviceStatus status_here_ = (expression); \
    if (!status_here_.ok()) return status_here_;                 \
  } while (false)

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_DEVICE_STATUS_H_
