// The program's operator new. In a file of its own: g++ takes inlined halves of the pair for a mismatch.
#include "tests/unit/capi/failing_memory.hpp"

#include <cstdlib>
#include <new>

namespace w4moe::test {
thread_local long allocations_left = -1;
}

using w4moe::test::allocations_left;

void* operator new(std::size_t bytes) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
