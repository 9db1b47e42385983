#include "common/drafting/crest_build/memory_use.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace foretoken {

uint64_t ResidentBytes() {
  // In pages; the second number is the resident set.
  std::ifstream statm("/proc/self/statm");
  uint64_t total = 0;
  uint64_t resident = 0;
  statm >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

uint64_t PeakResidentBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  // Linux gives KiB.
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

void ReleaseFreeMemory() { malloc_trim(0); }

}  // namespace foretoken
