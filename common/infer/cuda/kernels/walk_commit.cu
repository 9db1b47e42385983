#include <algorithm>

#include "common/infer/cuda/kernels/device_math.cuh"
#include "common/infer/cuda/kernels/walk_commit.h"

namespace foretoken::device {
namespace {

constexpr int kWalkWarps = 4;
constexpr int kCommitThreads = 128;
constexpr int kCommitBlocks = 64;  // over slots; each takes every 64th

// The first row after `parent` that follows it with `token`; -1: none.
__device__ __forceinline__ int32_t FindChild(const DeviceRow* rows,
                                             int32_t parent, int32_t end,
                                             int32_t token, int lane) {
  for (int32_t first = parent + 1; first < end; first += 32) {
    const int32_t r = first + lane;
    const bool found =
        r < end && rows[r].parent == parent && rows[r].token == token;
    const uint32_t lanes = __ballot_sync(kAllLanes, found);
    if (lanes != 0) return first + __ffs(lanes) - 1;
  }
  return -1;
}

// One warp a session.
__global__ void __launch_bounds__(kWalkWarps * 32)
    WalkKernel(const WalkParams p) {
  AllowNextKernel();
  WaitForPreviousKernels();
  const int lane = threadIdx.x % 32;
  const int s = blockIdx.x * kWalkWarps + threadIdx.x / 32;
  if (s >= p.pass->sessions) return;
  const DeviceSession session = p.pass->session()[s];
  const DeviceRow* rows = p.pass->row();
  int32_t* commit_rows = p.commit_rows + session.commit_begin;
  DeviceWalk walk;
  int32_t row = session.commit_count > 0 ? session.first_row : -1;
  while (row >= 0) {
    if (lane == 0) commit_rows[walk.length] = row;
    ++walk.length;
    walk.last_row = row;
    const int32_t output = rows[row].output;
    if (walk.length == session.commit_count || output < 0) break;
    row = FindChild(rows, row, session.first_row + session.rows,
                    p.tokens[output].token, lane);
  }
  for (int i = walk.length + lane; i < session.commit_count; i += 32) {
    commit_rows[i] = -1;
  }
  if (lane == 0) p.walks[s] = walk;
}

__global__ void __launch_bounds__(kCommitThreads)
    CommitKernel(const CommitParams p) {
  AllowNextKernel();
  WaitForPreviousKernels();
  const int32_t count = p.pass != nullptr ? p.pass->commits : p.count;
  const int32_t* slots = p.pass != nullptr ? p.pass->commit_slot() : p.slots;
  const int units = p.kv.padded_head_dim / 8;  // of 16 bytes
  for (int32_t c = blockIdx.x; c < count; c += gridDim.x) {
    const int32_t row = p.rows[c];
    if (row < 0) continue;
    for (int i = threadIdx.x; i < p.kv.kv_heads * units; i += kCommitThreads) {
      const int64_t from =
          KvAt(p.kv, blockIdx.y, p.kv.first_scratch_slot + row, i / units) / 8 +
          i % units;
      const int64_t to =
          KvAt(p.kv, blockIdx.y, slots[c], i / units) / 8 + i % units;
      static_cast<uint4*>(p.kv.keys)[to] =
          static_cast<const uint4*>(p.kv.keys)[from];
      static_cast<uint4*>(p.kv.values)[to] =
          static_cast<const uint4*>(p.kv.values)[from];
    }
  }
}

}  // namespace

cudaError_t PrepareWalkCommit() {
  const cudaError_t error = PrepareKernel(WalkKernel);
  return error != cudaSuccess ? error : PrepareKernel(CommitKernel);
}

cudaError_t LaunchWalk(const WalkParams& params, int sessions,
                       Launcher& launcher) {
  return launcher.Run(WalkKernel,
                      dim3((sessions + kWalkWarps - 1) / kWalkWarps),
                      dim3(kWalkWarps * 32), 0, params);
}

cudaError_t LaunchCommit(const CommitParams& params, int count,
                         Launcher& launcher) {
  return launcher.Run(CommitKernel,
                      dim3(std::min(count, kCommitBlocks), params.layers),
                      dim3(kCommitThreads), 0, params);
}

}  // namespace foretoken::device
