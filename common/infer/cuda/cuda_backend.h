// The CUDA backend: sessions, pages, plans and errors on the host, memory and
// kernels behind DeviceEngine. Knows nothing of CUDA, so that the same code
// runs over the engine's twin where there is no GPU.
//
// A round costs one Forward call. Its walk moves the KV of the path that the
// model's own tokens take, as far as the session's pages reach, so that a
// Commit of that path, or of a shorter one, only counts tokens.
#ifndef FORETOKEN_COMMON_INFER_CUDA_CUDA_BACKEND_H_
#define FORETOKEN_COMMON_INFER_CUDA_CUDA_BACKEND_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/infer/backend.h"
#include "common/infer/cuda/device_engine.h"
#include "common/infer/model_weights.h"
#include "common/infer/planned_backend.h"

namespace foretoken {

// kv_cache_bytes 0: room for kDefaultContexts sessions of full length, but at
// most half of the memory that the weights leave, so that a draft model finds
// room beside its target. kv_cache_tokens may take all of that memory.
struct CudaOptions : PlannedOptions {
  int32_t device = 0;
  // How kernels are launched; neither changes a bit of output.
  bool graphs = true;
  bool overlap = true;

  static constexpr int64_t kDefaultContexts = 64;
};

// Deletes with the library that made the engine.
using DeviceEnginePtr =
    std::unique_ptr<DeviceEngine, void (*)(DeviceEngine* engine)>;

// Makes an engine without weights: of the module (device_module.h) or the twin.
using DeviceEngineMaker = absl::FunctionRef<absl::StatusOr<DeviceEnginePtr>(
    const DeviceShape& shape, const DeviceOptions& options)>;

// Makes the engine and hands it the weights, which are not needed afterwards.
// InvalidArgument names a bad option; ResourceExhausted if memory is short;
// else what the engine says (Unavailable: no GPU; Unimplemented: no kernels for
// the shape).
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(
    const ModelWeights& weights, DeviceEngineMaker make_engine,
    const CudaOptions& options);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CUDA_CUDA_BACKEND_H_
