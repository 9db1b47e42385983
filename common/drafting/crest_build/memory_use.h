// Memory use of this process, as counted by the kernel.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_BUILD_MEMORY_USE_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_BUILD_MEMORY_USE_H_

#include <cstdint>

namespace foretoken {

uint64_t ResidentBytes();      // now
uint64_t PeakResidentBytes();  // since the process started

// Returns freed memory to the kernel.
void ReleaseFreeMemory();

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_BUILD_MEMORY_USE_H_
