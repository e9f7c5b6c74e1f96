// Fibers: one stack and one saved machine context per CUDA thread, announced to the sanitizers.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define W4MOE_LOCKSTEP_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define W4MOE_LOCKSTEP_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define W4MOE_LOCKSTEP_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define W4MOE_LOCKSTEP_TSAN 1
#endif
#endif

namespace w4moe::lockstep {

/// A stack with a context that runs `entry(argument)` once started; entry must not return. One of them stands for the program's
/// own stack: it is never started, only switched away from and back to.
class Fiber {
 public:
  /// The context of the caller's own stack.
  Fiber();
  /// A fiber with its own stack of `stack_bytes`; false from ok() where the system gives no memory.
  explicit Fiber(std::size_t stack_bytes);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  bool ok() const { return is_main_ || stack_ != nullptr; }

  /// Makes the next switch to this fiber begin entry(argument) on an empty stack, whatever it did before.
  void prepare(void (*entry)(void*), void* argument);

  /// Gives the fiber up in the middle of what it does: ends its ignore marks, and orders all it did before an acquire of `token`.
  void abandon(void* token);

  /// Leaves `from`, which must be running, and continues `to`. `from_is_done`: it will only run again after prepare().
  static void switch_to(Fiber& from, Fiber& to, bool from_is_done = false);

 private:
  static void begin(Fiber* self);
  friend void fiber_begin(Fiber* self);
  friend void ignore_accesses_begin();
  friend void ignore_accesses_end();
  void arrive();
  void drop_tsan_fiber();

  void* context_ = nullptr;  // saved stack pointer, or a ucontext_t
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  char* mapping_ = nullptr;
  std::size_t mapping_bytes_ = 0;
  char* stack_ = nullptr;
  std::size_t stack_bytes_ = 0;
  void* fake_stack_ = nullptr;  // AddressSanitizer's
  void* tsan_fiber_ = nullptr;
  unsigned tsan_uses_ = 0;
  int ignore_depth_ = 0;        // ignore_accesses_begin() without an end, where ThreadSanitizer is present
  bool is_main_ = false;
};

/// Ordering that ThreadSanitizer shall see between fibers: release at one address before, acquire after. No-ops without it.
void order_release(void* address);
void order_acquire(void* address);

/// Between the two, ThreadSanitizer ignores what the running fiber reads and writes: the device's own bookkeeping.
void ignore_accesses_begin();
void ignore_accesses_end();
struct IgnoreAccesses {
  IgnoreAccesses() { ignore_accesses_begin(); }
  ~IgnoreAccesses() { ignore_accesses_end(); }
};

}  // namespace w4moe::lockstep
