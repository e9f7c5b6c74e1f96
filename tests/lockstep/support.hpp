// Shared by the lock-step suites.
#pragma once

#include <catch2/catch.hpp>

#include <bit>
#include <cstdint>

#include "runtime/lockstep/device.hpp"

#define REQUIRE_OK(result)                                         \
  do {                                                             \
    const auto& checked_result = (result);                         \
    if (!checked_result) FAIL(checked_result.error().message);     \
  } while (false)

namespace w4moe::lockstep {

inline Options test_options() {
  Options options;
  options.source_dir = W4MOE_SOURCE_DIR;
  options.cache_dir = W4MOE_BINARY_DIR "/lockstep-cache";
  return options;
}

/// Bits of a float that bf16 holds exactly.
inline std::uint32_t bf16_bits(float v) { return std::bit_cast<std::uint32_t>(v) >> 16; }

}  // namespace w4moe::lockstep
