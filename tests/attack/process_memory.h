// The resident memory of another process of this machine (Linux).
#ifndef FORETOKEN_TESTS_ATTACK_PROCESS_MEMORY_H_
#define FORETOKEN_TESTS_ATTACK_PROCESS_MEMORY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace foretoken::attack {

struct ProcessMemory {
  int64_t resident = 0;  // bytes, now
  int64_t peak = 0;      // since the last ResetPeak
};

// NotFound if there is no such process.
absl::StatusOr<ProcessMemory> MemoryOf(int32_t pid);
// PermissionDenied for a process of another user.
absl::Status ResetPeak(int32_t pid);

}  // namespace foretoken::attack

#endif  // FORETOKEN_TESTS_ATTACK_PROCESS_MEMORY_H_
