// Device memory of the lock-step tests: each tensor its own heap block of the exact size, so that AddressSanitizer sees one byte
// past it. Without AddressSanitizer a canary behind the block is checked instead.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace w4moe::lockstep {

class Buffer {
 public:
  Buffer() = default;
  /// `bytes` of storage that begin at a multiple of 256 and hold `fill`.
  explicit Buffer(std::int64_t bytes, unsigned char fill = 0xff) : bytes_(static_cast<std::size_t>(bytes)) {
    void* p = nullptr;
    if (posix_memalign(&p, 256, bytes_ + kTail) != 0) std::abort();
    block_.reset(static_cast<unsigned char*>(p));
    std::memset(block_.get(), fill, bytes_);
    std::memset(block_.get() + bytes_, kCanary, kTail);
  }

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(block_.get());
  }
  unsigned char* data() const { return block_.get(); }
  std::int64_t bytes() const { return static_cast<std::int64_t>(bytes_); }
  bool tail_untouched() const {
    for (std::size_t i = 0; i < kTail; ++i) {
      if (block_.get()[bytes_ + i] != kCanary) return false;
    }
    return true;
  }

 private:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr std::size_t kTail = 0;
#else
  static constexpr std::size_t kTail = 64;
#endif
  static constexpr unsigned char kCanary = 0xa5;
  struct Free {
    void operator()(unsigned char* p) const { std::free(p); }
  };
  std::unique_ptr<unsigned char, Free> block_;
  std::size_t bytes_ = 0;
};

}  // namespace w4moe::lockstep
