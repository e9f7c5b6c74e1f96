// SHA-256 (FIPS 180-4), kept in one file so that an embeddable library needs no OpenSSL for its cache keys.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace w4moe::cache {

using Sha256Digest = std::array<std::uint8_t, 32>;

/// Incremental SHA-256: any number of `update` calls, then one `finish`.
class Sha256 {
 public:
  void update(std::string_view bytes);
  Sha256Digest finish();

 private:
  void compress(const std::uint8_t* block);

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, 64> block_{};
  std::size_t block_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
};

/// SHA-256 of one piece of memory.
Sha256Digest sha256(std::string_view bytes);

}  // namespace w4moe::cache
