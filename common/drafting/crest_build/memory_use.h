// What this process holds in memory, as the kernel counts it.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_BUILD_MEMORY_USE_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_BUILD_MEMORY_USE_H_

#include <cstdint>

namespace foretoken {

uint64_t ResidentBytes();      // now
uint64_t PeakResidentBytes();  // since the process began

// Gives memory that was freed back to the kernel.
void ReleaseFreeMemory();

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_BUILD_MEMORY_USE_H_
