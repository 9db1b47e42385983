// HeapPeakOf: the memory that some work takes at most. Replaces the operators
// new and delete of the whole binary: for one of its sources.
#ifndef FORETOKEN_TESTS_SUPPORT_COUNTED_HEAP_H_
#define FORETOKEN_TESTS_SUPPORT_COUNTED_HEAP_H_

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace foretoken::testing {

// Bytes allocated by operator new, and their maximum.
inline std::atomic<int64_t> g_heap{0}, g_heap_peak{0};

inline void* AllocateCounted(size_t size) {
  void* const memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  const auto usable = static_cast<int64_t>(malloc_usable_size(memory));
  const int64_t now = g_heap += usable;
  int64_t peak = g_heap_peak;
  while (now > peak && !g_heap_peak.compare_exchange_weak(peak, now)) {
  }
  return memory;
}

inline void FreeCounted(void* memory) noexcept {
  if (memory == nullptr) return;
  g_heap -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

template <typename Work>
int64_t HeapPeakOf(const Work& work) {
  const int64_t before = g_heap;
  g_heap_peak = before;
  work();
  return g_heap_peak - before;
}

}  // namespace foretoken::testing

void* operator new(size_t size) {
  return foretoken::testing::AllocateCounted(size);
}
void* operator new[](size_t size) {
  return foretoken::testing::AllocateCounted(size);
}
void operator delete(void* memory) noexcept {
  foretoken::testing::FreeCounted(memory);
}
void operator delete[](void* memory) noexcept {
  foretoken::testing::FreeCounted(memory);
}
void operator delete(void* memory, size_t) noexcept {
  foretoken::testing::FreeCounted(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  foretoken::testing::FreeCounted(memory);
}

#endif  // FORETOKEN_TESTS_SUPPORT_COUNTED_HEAP_H_
