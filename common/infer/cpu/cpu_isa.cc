#include "common/infer/cpu/cpu_isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace foretoken {
namespace {

constexpr char kAuto[] = "auto";

#if defined(__x86_64__)
// Conversions from fp16, which a hypervisor may hide from a machine with AVX2.
// Clang 14's __builtin_cpu_supports does not know them. Callers have checked
// AVX2, and so that the system saves the registers.
bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// VNNI in 256 bits. Callers have checked AVX2, so the system saves the
// registers.
bool HasAvxVnni() {
  // CPUID leaf 7, subleaf 1, EAX bit 4.
  constexpr unsigned kAvxVnni = 1u << 4;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 &&
         (eax & kAvxVnni) != 0;
}
#endif

// The tables that this machine can run, slowest first.
std::vector<const CpuOps*> SupportedOps() {
  std::vector<const CpuOps*> all = {ScalarOps()};
#if defined(__x86_64__)
  // The compiler's tests include what the operating system saves.
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !HasF16c()) {
    return all;
  }
  all.push_back(Avx2Ops());
  if (HasAvxVnni()) all.push_back(AvxVnniOps());
  if (!__builtin_cpu_supports("avx512f") ||
      !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl")) {
    return all;
  }
  all.push_back(Avx512Ops());
  if (!__builtin_cpu_supports("avx512vnni")) return all;
  all.push_back(Avx512VnniOps());
  if (__builtin_cpu_supports("avx512bf16")) all.push_back(Avx512Bf16Ops());
#endif
  return all;
}

}  // namespace

std::vector<CpuIsa> SupportedCpuIsas() {
  std::vector<CpuIsa> isas;
  for (const CpuOps* ops : SupportedOps()) isas.push_back(ops->isa);
  return isas;
}

absl::StatusOr<const CpuOps*> SelectCpuOps(std::optional<CpuIsa> isa) {
  return SelectCpuOps(isa, SupportedOps());
}

absl::StatusOr<const CpuOps*> SelectCpuOps(
    std::optional<CpuIsa> isa, absl::Span<const CpuOps* const> supported) {
  // The last is the fastest that this machine has.
  if (!isa.has_value()) return supported.back();
  for (const CpuOps* ops : supported) {
    if (ops->isa == *isa) return ops;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--isa=", kCpuIsaNames[static_cast<int>(*isa)],
      ": this processor does not have it, only ",
      absl::StrJoin(supported, ", ", [](std::string* out, const CpuOps* ops) {
        out->append(ops->name);
      })));
}

bool FewRowsFetchAhead() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  // By measurement on one processor of each maker (cpu_isa.h).
  return !__builtin_cpu_is("amd");
#else
  return true;
#endif
}

std::vector<std::string> CpuIsaChoices() {
  std::vector<std::string> choices = {kAuto};
  // Fastest first, as a reader looks for the best that fits.
  choices.insert(choices.end(), std::rbegin(kCpuIsaNames),
                 std::rend(kCpuIsaNames));
  return choices;
}

absl::StatusOr<std::optional<CpuIsa>> ParseCpuIsa(absl::string_view text) {
  if (text == kAuto) return std::optional<CpuIsa>();
  for (size_t i = 0; i < std::size(kCpuIsaNames); ++i) {
    if (text == kCpuIsaNames[i]) {
      return std::optional<CpuIsa>(static_cast<CpuIsa>(i));
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--isa=", text, ": want ", absl::StrJoin(CpuIsaChoices(), "|")));
}

}  // namespace foretoken
