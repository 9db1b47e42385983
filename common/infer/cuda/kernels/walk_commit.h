// The walk along the model's own tokens and the move of KV: launchers.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_WALK_COMMIT_H_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_WALK_COMMIT_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "common/infer/cuda/kernels/attention_index.h"
#include "common/infer/cuda/kernels/launch.h"
#include "common/infer/cuda/kernels/pass_layout.h"

namespace foretoken::device {

// From each session's first row to the child that holds the row's token, until
// there is none or as many rows as commit slots are passed. Fills `walks` and,
// for each commit slot, `commit_rows`: the row to move there, or -1.
struct WalkParams {
  const PassHeader* pass = nullptr;
  const DeviceToken* tokens = nullptr;
  DeviceWalk* walks = nullptr;
  int32_t* commit_rows = nullptr;
};
cudaError_t LaunchWalk(const WalkParams& params, int sessions,
                       Launcher& launcher);

// Copies K and V, all layers, from slots kv.first_scratch_slot + rows[i] to
// slots[i], bit for bit. `pass` given: to its commit slots, else to `count` of
// `slots`. Rows of -1 are left out.
struct CommitParams {
  const PassHeader* pass = nullptr;
  const int32_t* rows = nullptr;
  const int32_t* slots = nullptr;
  int32_t count = 0;
  KvMemory kv;
  int32_t layers = 0;
};
cudaError_t LaunchCommit(const CommitParams& params, int count,
                         Launcher& launcher);

// Once per process and device, before the first pass.
cudaError_t PrepareWalkCommit();

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_WALK_COMMIT_H_
