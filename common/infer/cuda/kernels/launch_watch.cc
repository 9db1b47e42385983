#include "common/infer/cuda/kernels/launch_watch.h"

#include <cxxabi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

namespace foretoken::device {
namespace {

constexpr std::chrono::seconds kLongest{10};

struct Free {
  void operator()(char* text) const { std::free(text); }
};

// The kernel's name with its template's arguments, without its parameters.
std::unique_ptr<char, Free> NameOf(const void* kernel) {
  const char* mangled = nullptr;
  if (cudaFuncGetName(&mangled, kernel) != cudaSuccess || mangled == nullptr) {
    mangled = "unknown kernel";
  }
  int status = 0;
  // A name that cannot be demangled is shown as it is.
  std::unique_ptr<char, Free> name(
      abi::__cxa_demangle(mangled, nullptr, nullptr, &status));
  if (name == nullptr) name.reset(strdup(mangled));
  return name;
}

}  // namespace

// Read once a process: a debugging aid that makes every launch synchronous.
bool LaunchWatch::Wanted() {
  const char* value = std::getenv("FORETOKEN_CUDA_SYNC");
  return value != nullptr && std::strcmp(value, "1") == 0;
}

cudaError_t LaunchWatch::Wait(cudaError_t launched, const void* kernel,
                              const cudaLaunchConfig_t& config) {
  cudaError_t error = launched;
  const auto start = std::chrono::steady_clock::now();
  // Polled, so that a kernel that never ends is reported with its name
  // instead of hanging the process.
  while (error == cudaSuccess || error == cudaErrorNotReady) {
    error = cudaStreamQuery(config.stream);
    if (error == cudaSuccess) return error;
    if (error != cudaErrorNotReady) break;
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited > kLongest) {
      error = cudaErrorLaunchTimeout;
      hangs_ = true;
    } else if (waited > std::chrono::milliseconds(1)) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  // The first failure is the cause; launches after a sticky error fail as well.
  if (failure_[0] != '\0') return error;
  std::snprintf(failure_, sizeof(failure_),
                "%s: pass %d, layer %d, grid %u x %u x %u, %u threads, %zu "
                "bytes shared: %.160s",
                cudaGetErrorName(error), pass_, layer_, config.gridDim.x,
                config.gridDim.y, config.gridDim.z, config.blockDim.x,
                config.dynamicSmemBytes, NameOf(kernel).get());
  std::fprintf(stderr, "FORETOKEN_CUDA_SYNC: %s\n", failure_);
  return error;
}

}  // namespace foretoken::device
