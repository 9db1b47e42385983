// Which instruction set the CPU backend runs on.
// Thread-safe.
#ifndef FORETOKEN_COMMON_INFER_CPU_CPU_ISA_H_
#define FORETOKEN_COMMON_INFER_CPU_CPU_ISA_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/infer/cpu/ops.h"

namespace foretoken {

// What this machine and this build can run, the scalar ops first, the fastest
// last.
std::vector<CpuIsa> SupportedCpuIsas();

// The ops of `isa`, or of the fastest supported one. FailedPrecondition, naming
// what there is, if this machine cannot run `isa`.
absl::StatusOr<const CpuOps*> SelectCpuOps(std::optional<CpuIsa> isa);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CPU_CPU_ISA_H_
