#include "tests/support/cuda_on_cpu/fiber.h"

#include <cstdint>

#if defined(__x86_64__)
// Callee-saved registers go to the old stack and come from the new one.
asm(R"(
.text
.type foretoken_switch_stack, @function
foretoken_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size foretoken_switch_stack, .-foretoken_switch_stack
)");
extern "C" void foretoken_switch_stack(void** save, void* next);
#endif

namespace foretoken::cuda_on_cpu {

#if defined(__x86_64__)

void Prepare(Context& context, char* stack, size_t bytes, void (*main)()) {
  const uintptr_t top = (reinterpret_cast<uintptr_t>(stack) + bytes) & ~15ul;
  auto** place = reinterpret_cast<void**>(top);
  *--place = nullptr;  // where main would return to
  *--place = reinterpret_cast<void*>(main);
  for (int i = 0; i < 6; ++i) *--place = nullptr;
  context.stack_pointer = place;
}

void Switch(Context& from, Context& to) {
  foretoken_switch_stack(&from.stack_pointer, to.stack_pointer);
}

#else

void Prepare(Context& context, char* stack, size_t bytes, void (*main)()) {
  getcontext(&context.saved);
  context.saved.uc_stack.ss_sp = stack;
  context.saved.uc_stack.ss_size = bytes;
  context.saved.uc_link = nullptr;
  makecontext(&context.saved, main, 0);
}

void Switch(Context& from, Context& to) { swapcontext(&from.saved, &to.saved); }

#endif

}  // namespace foretoken::cuda_on_cpu
