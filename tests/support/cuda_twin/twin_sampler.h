// The device twin's sampler: one output's token out of its logits, as a
// DeviceSampling asks for it.
//
// Pure functions; thread-safe.
#ifndef FORETOKEN_TESTS_SUPPORT_CUDA_TWIN_TWIN_SAMPLER_H_
#define FORETOKEN_TESTS_SUPPORT_CUDA_TWIN_TWIN_SAMPLER_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/infer/cuda/device_engine.h"
#include "common/infer/cuda/kernels/pass_layout.h"

namespace foretoken::twin {

// logits: [vocab], raw.
DeviceToken Sample(const device::PassHeader& pass, int32_t output,
                   absl::Span<const float> logits);

}  // namespace foretoken::twin

#endif  // FORETOKEN_TESTS_SUPPORT_CUDA_TWIN_TWIN_SAMPLER_H_
