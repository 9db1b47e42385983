#include <cstdlib>
#include <cstring>
#include <map>

#include "tests/support/cuda_on_cpu/machine.h"

namespace foretoken::cuda_on_cpu {
namespace {

struct Memory {
  std::map<const char*, size_t> pieces;
  int allocations_left = -1;
};

Memory& TheMemory() {
  static auto* memory = new Memory;
  return *memory;
}

}  // namespace

void* AllocateDevice(size_t bytes) {
  Memory& m = TheMemory();
  if (m.allocations_left == 0) return nullptr;
  if (m.allocations_left > 0) --m.allocations_left;
  const size_t rounded = (bytes + 255) / 256 * 256;
  char* p = static_cast<char*>(std::aligned_alloc(256, rounded));
  if (p == nullptr) return nullptr;
  std::memset(p, 0xff, bytes);
  m.pieces[p] = bytes;
  return p;
}

bool FreeDevice(void* p) {
  if (TheMemory().pieces.erase(static_cast<char*>(p)) == 0) return false;
  std::free(p);
  return true;
}

bool IsDeviceMemory(const void* p, size_t bytes) {
  const auto& pieces = TheMemory().pieces;
  const char* at = static_cast<const char*>(p);
  auto after = pieces.upper_bound(at);
  if (after == pieces.begin()) return false;
  --after;
  return at + bytes <= after->first + after->second;
}

int DeviceAllocations() { return static_cast<int>(TheMemory().pieces.size()); }

void FailAllocationAfter(int n) { TheMemory().allocations_left = n; }

}  // namespace foretoken::cuda_on_cpu
