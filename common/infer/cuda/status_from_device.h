// Pure functions; thread-safe.
#ifndef FORETOKEN_COMMON_INFER_CUDA_STATUS_FROM_DEVICE_H_
#define FORETOKEN_COMMON_INFER_CUDA_STATUS_FROM_DEVICE_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/infer/cuda/device_engine.h"

namespace foretoken {

// `context` names the step: "upload of layer 3's query matrix".
inline absl::Status StatusFromDevice(const DeviceStatus& status,
                                     absl::string_view context) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.code),
                      absl::StrCat("cuda backend: ", context, ": ",
                                   static_cast<const char*>(status.message)));
}

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CUDA_STATUS_FROM_DEVICE_H_
