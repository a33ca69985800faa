#include "metal/emulated/fibers.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace menagerie::metal::emulated {
namespace {

using menagerie::emulated::kPageBytes;
using menagerie::emulated::kStackBytes;

// Fibers lie at multiples of their size, where a shader finds them from its stack pointer.
std::byte* first_in(void* block) {
  const auto address = reinterpret_cast<uintptr_t>(block);
  return reinterpret_cast<std::byte*>((address + kStackBytes - 1) / kStackBytes * kStackBytes);
}

}  // namespace

// What a function must keep for its caller in the System V ABI of x86-64; the floating-point
// control words are the same on all stacks. ucontext would make two system calls a switch.
asm(R"(
.text
.p2align 4
.hidden menagerie_switch_stack
.globl menagerie_switch_stack
.type menagerie_switch_stack, @function
menagerie_switch_stack:
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
.size menagerie_switch_stack, . - menagerie_switch_stack

.p2align 4
.hidden menagerie_begin_stack
.globl menagerie_begin_stack
.type menagerie_begin_stack, @function
menagerie_begin_stack:
  movq %r12, %rdi
  callq *%rbx
  ud2
.size menagerie_begin_stack, . - menagerie_begin_stack
)");

extern "C" void menagerie_begin_stack();

FiberPool::~FiberPool() {
  for (void* block : blocks_) ::munmap(block, (kBlock + 1) * kStackBytes);
}

void FiberPool::grow() {
  void* block = ::mmap(nullptr, (kBlock + 1) * kStackBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (block == MAP_FAILED) throw std::bad_alloc();
  blocks_.push_back(block);
  for (size_t i = 0; i < kBlock; ++i) {
    // The page above the record: a stack that overflows stops here.
    ::mprotect(first_in(block) + i * kStackBytes + kPageBytes, kPageBytes, PROT_NONE);
  }
}

Fiber* FiberPool::fresh(size_t number) {
  while (number >= blocks_.size() * kBlock) grow();
  std::byte* memory = first_in(blocks_[number / kBlock]) + number % kBlock * kStackBytes;
  const auto line = menagerie::emulated::line_of(reinterpret_cast<uintptr_t>(memory));
  auto* fiber = new (memory + line) Fiber{};
  // As menagerie_switch_stack leaves a stack: six registers, then where to go on.
  auto* top = reinterpret_cast<uintptr_t*>(memory + kStackBytes - line) - 2;
  *--top = reinterpret_cast<uintptr_t>(&menagerie_begin_stack);
  *--top = 0;                                   // rbp
  *--top = reinterpret_cast<uintptr_t>(body_);  // rbx
  *--top = reinterpret_cast<uintptr_t>(fiber);  // r12
  for (int i = 0; i < 3; ++i) *--top = 0;       // r13, r14, r15
  fiber->stack_pointer = top;
  return fiber;
}

}  // namespace menagerie::metal::emulated
