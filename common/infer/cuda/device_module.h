// The GPU module: a shared library with everything that needs CUDA, loaded at
// run time, so that one binary starts on machines with and without a GPU, a
// driver or CUDA's libraries.
//
// Thread-safe. A library that was loaded stays loaded.
#ifndef FORETOKEN_COMMON_INFER_CUDA_DEVICE_MODULE_H_
#define FORETOKEN_COMMON_INFER_CUDA_DEVICE_MODULE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/infer/cuda/cuda_backend.h"
#include "common/infer/cuda/device_engine.h"

namespace foretoken {

inline constexpr char kDeviceModuleFile[] = "libforetoken_cuda.so";
inline constexpr char kDeviceModuleVariable[] = "FORETOKEN_CUDA_MODULE";

class DeviceModule {
 public:
  // The library that FORETOKEN_CUDA_MODULE names, else the one beside the
  // running binary, else that in ../lib. Unavailable, in one line, if there is
  // none, it does not load (CUDA's libraries are missing), or it was built for
  // another version of DeviceEngine.
  static absl::StatusOr<DeviceModule> Load();
  static absl::StatusOr<DeviceModule> LoadFile(const std::string& path);

  // Checks that the GPU exists, before weights are loaded for it. Errors as
  // Create's.
  absl::Status Probe(int32_t device) const;

  // Unavailable where there is no driver or no such GPU; ResourceExhausted
  // where its memory is short; InvalidArgument for a shape that the kernels do
  // not have.
  absl::StatusOr<DeviceEnginePtr> Create(const DeviceShape& shape,
                                         const DeviceOptions& options) const;

 private:
  DeviceModule(DeviceCreateFunction create, DeviceDeleteFunction destroy)
      : create_(create), destroy_(destroy) {}

  DeviceCreateFunction create_;
  DeviceDeleteFunction destroy_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CUDA_DEVICE_MODULE_H_
