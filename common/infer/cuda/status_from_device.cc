#include "common/infer/cuda/status_from_device.h"

#include "absl/strings/str_cat.h"

namespace foretoken {

absl::Status StatusFromDevice(const DeviceStatus& status,
                              absl::string_view context) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.code),
                      absl::StrCat("cuda backend: ", context, ": ",
                                   static_cast<const char*>(status.message)));
}

}  // namespace foretoken
