// What the engine asks of a GPU by its compute capability, and what the module
// was built for. Plain values; thread-safe.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_DEVICE_SUPPORT_H_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_DEVICE_SUPPORT_H_

#include <cstdint>
#include <initializer_list>

namespace foretoken::device {

// Ten times the major number plus the minor one: 86 is 8.6.
using Capability = int32_t;

// The first with mma of bf16, asynchronous copies to shared memory and
// __reduce_max_sync.
inline constexpr Capability kOldestCapability = 80;
// The first whose kernels may begin before those ahead of them have ended.
inline constexpr Capability kOverlapCapability = 90;

// The one with wgmma: its code (9.0a) runs on no other.
inline constexpr Capability kWarpgroupCapability = 90;

// What a module holds: machine code, which for X.y runs on X.z where z >= y,
// and PTX, which the driver compiles for what is newer. ptx 0: none.
// `warpgroups`: the code of 9.0 is 9.0a's.
struct ModuleCode {
  std::initializer_list<Capability> machine_code;
  Capability ptx = 0;
  bool warpgroups = false;

  constexpr bool HasMachineCode(Capability device) const {
    for (const Capability code : machine_code) {
      if (code / 10 == device / 10 && code <= device) return true;
    }
    return false;
  }
  constexpr bool Runs(Capability device) const {
    return HasMachineCode(device) || (ptx != 0 && ptx <= device);
  }
};

// Decides the kernels' tiles and grids, and no bit of the result.
struct DeviceLimits {
  int32_t shared_bytes = 0;  // dynamic, that a thread block can have
  bool warpgroups = false;   // it has wgmma, and the module code for it
  int32_t multiprocessors = 1;
};

// How many thread blocks of that much dynamic shared memory a multiprocessor of
// 228 KiB holds; each takes 1 KiB more (compute capability 9.0).
constexpr int ResidentBlocks(int shared_bytes) {
  return 228 * 1024 / (shared_bytes + 1024);
}

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_DEVICE_SUPPORT_H_
