#include "tests/attack/process_memory.h"

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace foretoken::attack {

absl::StatusOr<ProcessMemory> MemoryOf(int32_t pid) {
  const std::string path = absl::StrCat("/proc/", pid, "/status");
  std::ifstream status(path);
  ProcessMemory memory;
  std::string field;
  while (status >> field) {
    int64_t kib = 0;
    if (field == "VmRSS:" && status >> kib) memory.resident = kib << 10;
    if (field == "VmHWM:" && status >> kib) memory.peak = kib << 10;
  }
  if (memory.peak == 0) {
    return absl::NotFoundError(absl::StrCat(path, ": names no memory"));
  }
  return memory;
}

absl::Status ResetPeak(int32_t pid) {
  const std::string path = absl::StrCat("/proc/", pid, "/clear_refs");
  std::ofstream file(path);
  file << "5" << std::flush;
  return file ? absl::OkStatus()
              : absl::PermissionDeniedError(
                    absl::StrCat(path, ": cannot be written"));
}

}  // namespace foretoken::attack
