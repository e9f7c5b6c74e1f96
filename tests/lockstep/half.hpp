// 16-bit floats of the tests, by arithmetic on doubles rather than on bits: independent of the device's own conversions.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "contract/types.h"

namespace w4moe::lockstep {

inline double value_of_half(DType type, unsigned bits) {
  const int mantissa_bits = type == DType::bf16 ? 7 : 10;
  const int bias = type == DType::bf16 ? 127 : 15;
  const int field = static_cast<int>((bits & 0x7fffu) >> mantissa_bits);
  const int mantissa = static_cast<int>(bits & ((1u << mantissa_bits) - 1));
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  if (field == 2 * bias + 1) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  if (field == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, field - bias - mantissa_bits);
}

/// Nearest 16-bit value, ties to even; overflow gives infinity, NaN 0x7fff.
inline std::uint16_t half_of(DType type, double v) {
  const int mantissa_bits = type == DType::bf16 ? 7 : 10;
  const int bias = type == DType::bf16 ? 127 : 15;
  const unsigned sign = std::signbit(v) ? 0x8000u : 0u;
  if (std::isnan(v)) return 0x7fff;
  const unsigned infinity = static_cast<unsigned>(2 * bias + 1) << mantissa_bits;
  if (std::isinf(v)) return static_cast<std::uint16_t>(sign | infinity);
  const double magnitude = std::fabs(v);
  if (magnitude == 0) return static_cast<std::uint16_t>(sign);
  int exponent = std::ilogb(magnitude);
  if (exponent < 1 - bias) exponent = 1 - bias;
  const double steps = std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent));  // ties to even by the default mode
  const double bits = steps + std::ldexp(exponent - (1 - bias), mantissa_bits);
  return static_cast<std::uint16_t>(sign | (bits < infinity ? static_cast<unsigned>(bits) : infinity));
}

}  // namespace w4moe::lockstep
