// One CTA's shared memory: exactly the declared bytes, with a canary or poison behind them and unreadable pages on both sides.
#pragma once

#include <cstdint>

namespace w4moe::lockstep {

class SharedBlock {
 public:
  explicit SharedBlock(std::int64_t bytes);
  ~SharedBlock();
  SharedBlock(const SharedBlock&) = delete;
  SharedBlock& operator=(const SharedBlock&) = delete;

  bool ok() const { return base_ != nullptr; }
  unsigned char* base() const { return base_; }
  std::int64_t bytes() const { return bytes_; }

  /// What a CTA finds: bytes that are NaN in every type.
  void reset();

  /// Distance of the first changed byte behind the block from its end, or -1. AddressSanitizer reports the write itself.
  std::int64_t overrun() const;

 private:
  std::int64_t bytes_ = 0;
  std::int64_t usable_bytes_ = 0;
  std::int64_t mapping_bytes_ = 0;
  unsigned char* mapping_ = nullptr;
  unsigned char* base_ = nullptr;
};

}  // namespace w4moe::lockstep
