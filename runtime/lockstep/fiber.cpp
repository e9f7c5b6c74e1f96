#include "runtime/lockstep/fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "contract/prelude.h"

#if defined(W4MOE_LOCKSTEP_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(W4MOE_LOCKSTEP_TSAN)
#include <sanitizer/tsan_interface.h>
// Either name makes the runtime ignore reads and writes alike.
extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);
#endif

#if defined(__x86_64__) && !defined(W4MOE_LOCKSTEP_UCONTEXT)
#define W4MOE_LOCKSTEP_ASM_SWITCH 1
#else
#include <ucontext.h>
#endif

// The switch itself happens outside of any fiber that ThreadSanitizer knows.
#define W4MOE_UNSEEN __attribute__((no_sanitize("thread")))

namespace w4moe::lockstep {

void fiber_begin(Fiber* self) { Fiber::begin(self); }

}  // namespace w4moe::lockstep

#if defined(W4MOE_LOCKSTEP_ASM_SWITCH)
// Saves the callee-saved registers and the stack pointer, continues where the other context did the same. swapcontext would
// do, at the price of two system calls a switch.
extern "C" void w4moe_lockstep_switch(void** save, void* load);
extern "C" void w4moe_lockstep_start();
extern "C" __attribute__((used)) void w4moe_lockstep_begin(void* self) {
  w4moe::lockstep::fiber_begin(static_cast<w4moe::lockstep::Fiber*>(self));
  std::abort();  // entry must not return
}
asm(R"(
.text
.p2align 4
.globl w4moe_lockstep_switch
.hidden w4moe_lockstep_switch
.type w4moe_lockstep_switch, @function
w4moe_lockstep_switch:
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
.size w4moe_lockstep_switch, .-w4moe_lockstep_switch
.p2align 4
.globl w4moe_lockstep_start
.hidden w4moe_lockstep_start
.type w4moe_lockstep_start, @function
w4moe_lockstep_start:
  .cfi_startproc
  .cfi_undefined rip
  movq %r12, %rdi
  xorl %ebp, %ebp
  call w4moe_lockstep_begin@PLT
  ud2
  .cfi_endproc
.size w4moe_lockstep_start, .-w4moe_lockstep_start
)");
#endif

namespace w4moe::lockstep {

namespace {

#if !defined(W4MOE_LOCKSTEP_ASM_SWITCH)
void start_from_context(unsigned high, unsigned low) {
  fiber_begin(reinterpret_cast<Fiber*>((static_cast<std::uintptr_t>(high) << 32) | low));
}
#endif

#if defined(W4MOE_LOCKSTEP_ASAN)
Fiber* switched_from = nullptr;  // AddressSanitizer tells the bounds of the program's own stack to whoever it switches to
#endif

#if defined(W4MOE_LOCKSTEP_TSAN)
Fiber* running_fiber = nullptr;  // null on the program's own stack outside of a launch
#endif

}  // namespace

Fiber::Fiber() : is_main_(true) {
#if !defined(W4MOE_LOCKSTEP_ASM_SWITCH)
  context_ = new ucontext_t;
#endif
#if defined(W4MOE_LOCKSTEP_TSAN)
  tsan_fiber_ = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(std::size_t stack_bytes) {
#if !defined(W4MOE_LOCKSTEP_ASM_SWITCH)
  context_ = new ucontext_t;
#endif
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  stack_bytes_ = static_cast<std::size_t>(align_up(static_cast<i64>(stack_bytes), static_cast<i64>(page)));
  mapping_bytes_ = stack_bytes_ + page;  // the lowest page stays unreadable: an overflow is a fault, not a wrong answer
  void* mapping = mmap(nullptr, mapping_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return;
  mapping_ = static_cast<char*>(mapping);
  if (mprotect(mapping_ + page, stack_bytes_, PROT_READ | PROT_WRITE) != 0) return;
  stack_ = mapping_ + page;
}

Fiber::~Fiber() {
#if defined(W4MOE_LOCKSTEP_TSAN)
  if (running_fiber == this) running_fiber = nullptr;
#endif
  drop_tsan_fiber();
#if defined(W4MOE_LOCKSTEP_ASAN)
  if (!is_main_ && stack_ != nullptr) __asan_unpoison_memory_region(stack_, stack_bytes_);
#endif
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
#if !defined(W4MOE_LOCKSTEP_ASM_SWITCH)
  delete static_cast<ucontext_t*>(context_);
#endif
}

W4MOE_UNSEEN void Fiber::abandon([[maybe_unused]] void* token) {
#if defined(W4MOE_LOCKSTEP_TSAN)
  if (is_main_ || tsan_fiber_ == nullptr) return;
  void* here = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_fiber_, __tsan_switch_to_fiber_no_sync);
  for (; ignore_depth_ > 0; --ignore_depth_) AnnotateIgnoreReadsEnd(__FILE__, __LINE__);  // the runtime insists on balance
  __tsan_release(token);
  __tsan_switch_to_fiber(here, __tsan_switch_to_fiber_no_sync);
#endif
}

void Fiber::drop_tsan_fiber() {
#if defined(W4MOE_LOCKSTEP_TSAN)
  if (!is_main_ && tsan_fiber_ != nullptr) __tsan_destroy_fiber(tsan_fiber_);
  tsan_fiber_ = nullptr;
#endif
}

void Fiber::prepare(void (*entry)(void*), void* argument) {
  entry_ = entry;
  argument_ = argument;
  fake_stack_ = nullptr;
#if defined(W4MOE_LOCKSTEP_ASAN)
  __asan_unpoison_memory_region(stack_, stack_bytes_);
#endif
#if defined(W4MOE_LOCKSTEP_TSAN)
  // Making one costs a millisecond, so they are used again. They never return from the functions they stand in when they end,
  // and what ThreadSanitizer keeps of those is bounded: hence not for ever.
  if (++tsan_uses_ % 512 == 0) drop_tsan_fiber();
  if (tsan_fiber_ == nullptr) tsan_fiber_ = __tsan_create_fiber(0);
#endif
#if defined(W4MOE_LOCKSTEP_ASM_SWITCH)
  // Frame that w4moe_lockstep_switch pops: r15, r14, r13, r12, rbx, rbp, return address. r12 carries the fiber.
  void** top = reinterpret_cast<void**>(stack_ + stack_bytes_);
  *--top = nullptr;
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&w4moe_lockstep_start);
  *--top = nullptr;  // rbp
  *--top = nullptr;  // rbx
  *--top = this;     // r12
  *--top = nullptr;  // r13
  *--top = nullptr;  // r14
  *--top = nullptr;  // r15
  context_ = top;
#else
  ucontext_t* context = static_cast<ucontext_t*>(context_);
  getcontext(context);
  context->uc_stack.ss_sp = stack_;
  context->uc_stack.ss_size = stack_bytes_;
  context->uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  makecontext(context, reinterpret_cast<void (*)()>(&start_from_context), 2, static_cast<unsigned>(self >> 32),
              static_cast<unsigned>(self));
#endif
}

W4MOE_UNSEEN void Fiber::arrive() {
#if defined(W4MOE_LOCKSTEP_TSAN)
  running_fiber = this;
#endif
#if defined(W4MOE_LOCKSTEP_ASAN)
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &bytes);
  fake_stack_ = nullptr;
  if (switched_from != nullptr && switched_from->is_main_) {
    switched_from->stack_ = static_cast<char*>(const_cast<void*>(bottom));
    switched_from->stack_bytes_ = bytes;
  }
#endif
}

W4MOE_UNSEEN void Fiber::begin(Fiber* self) {
  self->arrive();
  self->entry_(self->argument_);
}

W4MOE_UNSEEN void Fiber::switch_to(Fiber& from, Fiber& to, [[maybe_unused]] bool from_is_done) {
#if defined(W4MOE_LOCKSTEP_ASAN)
  switched_from = &from;
  __sanitizer_start_switch_fiber(from_is_done ? nullptr : &from.fake_stack_, to.stack_, to.stack_bytes_);
#endif
#if defined(W4MOE_LOCKSTEP_TSAN)
  __tsan_switch_to_fiber(to.tsan_fiber_, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(W4MOE_LOCKSTEP_ASM_SWITCH)
  w4moe_lockstep_switch(&from.context_, to.context_);
#else
  swapcontext(static_cast<ucontext_t*>(from.context_), static_cast<ucontext_t*>(to.context_));
#endif
  from.arrive();
}

#if defined(W4MOE_LOCKSTEP_TSAN)
void order_release(void* address) { __tsan_release(address); }
void order_acquire(void* address) { __tsan_acquire(address); }
W4MOE_UNSEEN void ignore_accesses_begin() {
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  if (running_fiber != nullptr) ++running_fiber->ignore_depth_;
}
W4MOE_UNSEEN void ignore_accesses_end() {
  if (running_fiber != nullptr) --running_fiber->ignore_depth_;
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
#else
void order_release(void*) {}
void order_acquire(void*) {}
void ignore_accesses_begin() {}
void ignore_accesses_end() {}
#endif

}  // namespace w4moe::lockstep
