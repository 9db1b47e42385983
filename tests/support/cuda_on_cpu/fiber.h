// Two stacks and a way from one to the other, without the system calls that
// swapcontext makes. Owned by one thread.
#ifndef FORETOKEN_TESTS_SUPPORT_CUDA_ON_CPU_FIBER_H_
#define FORETOKEN_TESTS_SUPPORT_CUDA_ON_CPU_FIBER_H_

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include <cstddef>

namespace foretoken::cuda_on_cpu {

struct Context {
#if defined(__x86_64__)
  void* stack_pointer = nullptr;
#else
  ucontext_t saved;
#endif
};

// Makes `context` begin `main`, which must never return, at the next switch.
void Prepare(Context& context, char* stack, size_t bytes, void (*main)());

// Leaves the running one in `from`.
void Switch(Context& from, Context& to);

}  // namespace foretoken::cuda_on_cpu

#endif  // FORETOKEN_TESTS_SUPPORT_CUDA_ON_CPU_FIBER_H_
