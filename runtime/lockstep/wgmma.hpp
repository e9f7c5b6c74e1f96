// What wgmma computes: m64nNk16, A in registers, B token rows of 128 bytes in shared memory, swizzled in groups of eight.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/lockstep/abi.h"
#include "runtime/lockstep/collectives.hpp"

namespace w4moe::lockstep {

/// The B operand that a descriptor names.
class TokenTile {
 public:
  /// What is wrong with it, or an empty string.
  std::string open(unsigned long long descriptor, int tokens, std::int64_t shared_bytes);
  /// Offset of an element in shared memory.
  std::int64_t offset(int token, int k) const {
    // The hardware swizzles addresses, not positions: bits 4..6 are crossed with bits 7..9.
    const std::int64_t at = start_ + token / 8 * 1024 + token % 8 * 128 + k * 2;
    return at ^ ((at >> 7 & 7) << 4);
  }

 private:
  std::int64_t start_ = 0;
};

/// The fields of a descriptor besides its start: eight-row groups 1024 bytes apart, 128-byte swizzle.
inline constexpr unsigned long long kTokenTileFields = (1ull << 16) | (64ull << 32) | (1ull << 62);

/// Adds A B to the sums of each of the 128 threads: products exact, the sum of a k16 step and the accumulator rounded once.
void wgmma(const WgmmaOperand* const (&threads)[128], const TokenTile& tile, const unsigned char* shared, float* const (&sums)[128]);

/// Where accumulator i of a thread belongs: row of A, token.
constexpr Position wgmma_d_position(int thread, int i) {
  return {thread / 32 * 16 + thread % 32 / 4 + (i % 4 >= 2 ? 8 : 0), i / 4 * 8 + 2 * (thread % 4) + i % 2};
}

}  // namespace w4moe::lockstep
