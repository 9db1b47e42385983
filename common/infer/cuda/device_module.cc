#include "common/infer/cuda/device_module.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/infer/cuda/status_from_device.h"

namespace foretoken {
namespace {

std::string BinaryFolder() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "." : path.parent_path().string();
}

template <typename Function>
absl::StatusOr<Function> FindSymbol(void* library, const std::string& path,
                                    const char* name) {
  if (void* const symbol = dlsym(library, name); symbol != nullptr) {
    return reinterpret_cast<Function>(symbol);
  }
  return absl::UnavailableError(absl::StrCat(
      "GPU module ", path, ": no function ", name, ", it is another library"));
}

}  // namespace

absl::StatusOr<DeviceModule> DeviceModule::Load() {
  // The variable wins over the default places, and a bad value is an error
  // rather than a reason to look there: an operator who names a module wants
  // that one.
  const char* named = std::getenv(kDeviceModuleVariable);
  if (named != nullptr && *named != '\0') return LoadFile(named);
  const std::string folder = BinaryFolder();
  for (const std::string& path :
       {absl::StrCat(folder, "/", kDeviceModuleFile),
        absl::StrCat(folder, "/../lib/", kDeviceModuleFile)}) {
    if (access(path.c_str(), F_OK) == 0) return LoadFile(path);
  }
  return absl::UnavailableError(
      absl::StrCat("no GPU module: ", kDeviceModuleFile, " is neither in ",
                   folder, " nor in ", folder, "/../lib, and ",
                   kDeviceModuleVariable, " is not set"));
}

absl::StatusOr<DeviceModule> DeviceModule::LoadFile(const std::string& path) {
  // RTLD_NOW: a missing CUDA library must fail here, where the CPU can still be
  // chosen, and not in the first pass. RTLD_LOCAL keeps the module's symbols
  // out of this binary. The library is never closed, since engines hold
  // pointers into it.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::UnavailableError(absl::StrCat("GPU module: ", dlerror()));
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      const auto abi,
      FindSymbol<DeviceAbiFunction>(library, path, kDeviceAbiSymbol));
  // The structs of device_engine.h cross this border by layout; without the
  // check, a module of another build would read them wrong without an error.
  if (abi() != kDeviceAbi) {
    return absl::UnavailableError(absl::StrFormat(
        "GPU module %s: built for version %d of the device interface, want %d",
        path, abi(), kDeviceAbi));
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      const auto create,
      FindSymbol<DeviceCreateFunction>(library, path, kDeviceCreateSymbol));
  FORETOKEN_ASSIGN_OR_RETURN(
      const auto destroy,
      FindSymbol<DeviceDeleteFunction>(library, path, kDeviceDeleteSymbol));
  return DeviceModule(create, destroy);
}

absl::Status DeviceModule::Probe(int32_t device) const {
  // The smallest engine that the kernels accept: making it proves driver,
  // device and kernels without the time and memory of the model.
  DeviceShape smallest;
  smallest.d_model = smallest.head_dim = smallest.d_ff = smallest.vocab = 32;
  smallest.layers = smallest.heads = smallest.kv_heads = 1;
  smallest.max_positions = kDevicePageTokens;
  DeviceOptions options;
  options.device = device;
  options.max_rows = options.max_sessions = 1;
  return Create(smallest, options).status();
}

absl::StatusOr<DeviceEnginePtr> DeviceModule::Create(
    const DeviceShape& shape, const DeviceOptions& options) const {
  DeviceEngine* engine = nullptr;
  const DeviceStatus status = create_(&shape, &options, &engine);
  // Owned before the status is read, so that an engine that comes with an error
  // is not leaked.
  DeviceEnginePtr owned(engine, destroy_);
  if (!status.ok()) {
    return StatusFromDevice(status, absl::StrCat("device ", options.device));
  }
  return owned;
}

}  // namespace foretoken
