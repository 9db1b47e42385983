// A GPU module without a GPU: what libforetoken_cuda.so exports, over the twin.
// Loaded by the tests in the place of the real one.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "common/infer/cuda/device_engine.h"
#include "tests/support/cuda_twin/device_twin.h"

#ifndef FORETOKEN_TEST_ABI
#define FORETOKEN_TEST_ABI foretoken::kDeviceAbi
#endif

extern "C" {

uint32_t ForetokenDeviceAbi() { return FORETOKEN_TEST_ABI; }

foretoken::DeviceStatus ForetokenCreateDeviceEngine(
    const foretoken::DeviceShape* shape,
    const foretoken::DeviceOptions* options, foretoken::DeviceEngine** engine) {
  auto made = foretoken::MakeDeviceTwin(*shape, *options);
  foretoken::DeviceStatus status;
  if (made.ok()) {
    *engine = made->release();
    return status;
  }
  status.code = static_cast<int32_t>(made.status().code());
  std::snprintf(status.message, sizeof(status.message), "%s",
                std::string(made.status().message()).c_str());
  return status;
}

void ForetokenDeleteDeviceEngine(foretoken::DeviceEngine* engine) {
  delete engine;
}

}  // extern "C"
