#include "runtime/lockstep/shared_block.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "contract/prelude.h"
#include "runtime/lockstep/fiber.hpp"

#if defined(W4MOE_LOCKSTEP_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace w4moe::lockstep {
namespace {

constexpr unsigned char kUnwritten = 0xff;
constexpr unsigned char kCanary = 0xa5;

void forbid([[maybe_unused]] void* p, [[maybe_unused]] std::int64_t bytes) {
#if defined(W4MOE_LOCKSTEP_ASAN)
  __asan_poison_memory_region(p, static_cast<std::size_t>(bytes));
#endif
}

void allow([[maybe_unused]] void* p, [[maybe_unused]] std::int64_t bytes) {
#if defined(W4MOE_LOCKSTEP_ASAN)
  __asan_unpoison_memory_region(p, static_cast<std::size_t>(bytes));
#endif
}

}  // namespace

SharedBlock::SharedBlock(std::int64_t bytes) : bytes_(bytes) {
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  usable_bytes_ = align_up(bytes + 1, page);  // at least one byte of canary
  mapping_bytes_ = usable_bytes_ + 2 * page;
  void* p = mmap(nullptr, static_cast<std::size_t>(mapping_bytes_), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return;
  mapping_ = static_cast<unsigned char*>(p);
  if (mprotect(mapping_ + page, static_cast<std::size_t>(usable_bytes_), PROT_READ | PROT_WRITE) == 0) base_ = mapping_ + page;
}

SharedBlock::~SharedBlock() {
  if (base_ != nullptr) allow(base_, usable_bytes_);
  if (mapping_ != nullptr) munmap(mapping_, static_cast<std::size_t>(mapping_bytes_));
}

void SharedBlock::reset() {
  allow(base_, usable_bytes_);
  std::memset(base_, kUnwritten, static_cast<std::size_t>(bytes_));
  std::memset(base_ + bytes_, kCanary, static_cast<std::size_t>(usable_bytes_ - bytes_));
  forbid(base_ + bytes_, usable_bytes_ - bytes_);
}

std::int64_t SharedBlock::overrun() const {
#if !defined(W4MOE_LOCKSTEP_ASAN)
  for (std::int64_t i = bytes_; i < usable_bytes_; ++i) {
    if (base_[i] != kCanary) return i - bytes_;
  }
#endif
  return -1;
}

}  // namespace w4moe::lockstep
