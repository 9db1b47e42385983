#include "common/infer/cpu/cpu_isa.h"

#include <string>

#include "absl/strings/str_join.h"

namespace foretoken {
namespace {

const char* IsaName(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kScalar:
      return "scalar";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvx512:
      return "avx512";
    case CpuIsa::kAvx512Bf16:
      return "avx512bf16";
  }
  return "unknown";
}

const CpuOps* OpsFor(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kScalar:
      return ScalarOps();
#if defined(__x86_64__)
    case CpuIsa::kAvx2:
      return Avx2Ops();
    case CpuIsa::kAvx512:
      return Avx512Ops();
    case CpuIsa::kAvx512Bf16:
      return Avx512Bf16Ops();
#else
    default:
      break;
#endif
  }
  return nullptr;
}

}  // namespace

std::vector<CpuIsa> SupportedCpuIsas() {
  std::vector<CpuIsa> isas = {CpuIsa::kScalar};
#if defined(__x86_64__)
  // The compiler's tests include what the operating system saves.
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    return isas;
  }
  isas.push_back(CpuIsa::kAvx2);
  if (!__builtin_cpu_supports("avx512f") ||
      !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl")) {
    return isas;
  }
  isas.push_back(CpuIsa::kAvx512);
  if (__builtin_cpu_supports("avx512bf16")) {
    isas.push_back(CpuIsa::kAvx512Bf16);
  }
#endif
  return isas;
}

absl::StatusOr<const CpuOps*> SelectCpuOps(std::optional<CpuIsa> isa) {
  const std::vector<CpuIsa> supported = SupportedCpuIsas();
  if (!isa.has_value()) return OpsFor(supported.back());
  for (const CpuIsa have : supported) {
    if (have == *isa) return OpsFor(have);
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "cpu backend: this machine cannot run ", IsaName(*isa), ", it has ",
      absl::StrJoin(supported, ", ", [](std::string* out, CpuIsa have) {
        out->append(IsaName(have));
      })));
}

}  // namespace foretoken
