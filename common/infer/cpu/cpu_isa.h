// Which instruction set the CPU backend runs on.
// Thread-safe.
#ifndef FORETOKEN_COMMON_INFER_CPU_CPU_ISA_H_
#define FORETOKEN_COMMON_INFER_CPU_CPU_ISA_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/infer/cpu/ops.h"

namespace foretoken {

// Instruction sets that this machine and build can run, the scalar ops first,
// the fastest last.
std::vector<CpuIsa> SupportedCpuIsas();

// The ops of `isa`, or of the fastest supported one. InvalidArgument, naming
// --isa and what there is, if this machine cannot run `isa`.
absl::StatusOr<const CpuOps*> SelectCpuOps(std::optional<CpuIsa> isa);

// The same for a machine that can run `supported`, slowest first.
absl::StatusOr<const CpuOps*> SelectCpuOps(
    std::optional<CpuIsa> isa, absl::Span<const CpuOps* const> supported);

// Whether passes of few rows should fetch weights ahead themselves
// (GemmArgs::few_rows_fetch), by what was measured: on Intel's Sapphire Rapids
// one row takes 0.65 to 0.9 of its time with it, on AMD's Zen 4 1.05 to 1.1.
bool FewRowsFetchAhead();

// Values of --isa: "auto", then every instruction set, fastest first.
std::vector<std::string> CpuIsaChoices();

// A value of --isa; nullopt for "auto". InvalidArgument for any other text.
absl::StatusOr<std::optional<CpuIsa>> ParseCpuIsa(absl::string_view text);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CPU_CPU_ISA_H_
