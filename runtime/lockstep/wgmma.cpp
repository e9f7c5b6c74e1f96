#include "runtime/lockstep/wgmma.hpp"

#include <fmt/format.h>

#include <cstring>
#include <vector>

namespace w4moe::lockstep {

std::string TokenTile::open(unsigned long long descriptor, int tokens, std::int64_t shared_bytes) {
  constexpr unsigned long long kStart = 0x3fff;
  if ((descriptor & ~kStart) != kTokenTileFields) return fmt::format("wgmma: descriptor {:#x} is not one of wgmma_tokens()", descriptor);
  if (tokens < 8 || tokens > 256 || tokens % 8 != 0) return fmt::format("wgmma of {} tokens; multiples of 8 up to 256 are accepted", tokens);
  start_ = static_cast<std::int64_t>(descriptor & kStart) * 16;
  if (start_ % 1024 >= 128) return fmt::format("wgmma: tokens at shared offset {}; a group of eight rows begins at a multiple of 1024", start_);
  if (start_ % 1024 + 32 > 128) return fmt::format("wgmma: 16 K from shared offset {} leave their row of 128 bytes", start_);
  const std::int64_t end = start_ / 1024 * 1024 + tokens * 128;
  if (end > shared_bytes) return fmt::format("wgmma: tokens up to offset {} of {} bytes of shared memory", end, shared_bytes);
  return {};
}

void wgmma(const WgmmaOperand* const (&threads)[128], const TokenTile& tile, const unsigned char* shared, float* const (&sums)[128]) {
  const WgmmaOperand& first = *threads[0];
  const int tokens = first.tokens;
  const auto value_of = [&](unsigned half) { return first.is_bf16 ? bf16_value(half) : f16_value(half); };
  std::vector<double> b(static_cast<std::size_t>(tokens) * 16);  // [token][k]
  for (int token = 0; token < tokens; ++token) {
    for (int k = 0; k < 16; ++k) {
      std::uint16_t half;
      std::memcpy(&half, shared + tile.offset(token, k), 2);
      b[static_cast<std::size_t>(token * 16 + k)] = value_of(half);
    }
  }
  double a[64][16];
  for (int thread = 0; thread < 128; ++thread) {
    for (int i = 0; i < 8; ++i) {
      const Position p = mma_a_position(thread % 32, i);
      a[thread / 32 * 16 + p.row][p.column] = value_of((threads[thread]->a[i / 2] >> (i % 2 * 16)) & 0xffffu);
    }
  }
  for (int thread = 0; thread < 128; ++thread) {
    for (int i = 0; i < tokens / 2; ++i) {
      const Position p = wgmma_d_position(thread, i);
      double sum = 0;
      for (int k = 0; k < 16; ++k) sum += a[p.row][k] * b[static_cast<std::size_t>(p.column * 16 + k)];
      sums[thread][i] = static_cast<float>(sum + sums[thread][i]);
    }
  }
}

}  // namespace w4moe::lockstep
