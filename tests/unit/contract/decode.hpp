// Decoders in double, written from the formats' definitions and sharing nothing with the contract.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace w4moe::test {

/// 4-bit float: magnitudes 0 .5 1 1.5 2 3 4 6, bit 3 the sign.
inline double e2m1_value(unsigned code) {
  const double magnitudes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return (code & 8u) != 0 ? -magnitudes[code & 7u] : magnitudes[code & 7u];
}

/// 8-bit float e4m3fn: bias 7, no infinity, 0x7f and 0xff are NaN.
inline double e4m3_value(unsigned byte) {
  const unsigned exponent = (byte >> 3) & 15u, mantissa = byte & 7u;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<double>::quiet_NaN();
  const double magnitude = exponent == 0 ? mantissa * std::pow(2.0, -9) : (1 + mantissa / 8.0) * std::pow(2.0, double(exponent) - 7);
  return (byte & 0x80u) != 0 ? -magnitude : magnitude;
}

/// A binary float of `exponent_bits` and `mantissa_bits` with the usual bias, subnormals, infinities and NaN.
inline double binary_float_value(unsigned bits, int exponent_bits, int mantissa_bits) {
  const unsigned mantissa = bits & ((1u << mantissa_bits) - 1);
  const unsigned exponent = (bits >> mantissa_bits) & ((1u << exponent_bits) - 1);
  const bool negative = ((bits >> (mantissa_bits + exponent_bits)) & 1u) != 0;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  double magnitude;
  if (exponent == (1u << exponent_bits) - 1) {
    magnitude = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = mantissa * std::pow(2.0, 1 - bias - mantissa_bits);
  } else {
    magnitude = (1 + mantissa * std::pow(2.0, -mantissa_bits)) * std::pow(2.0, double(exponent) - bias);
  }
  return negative ? -magnitude : magnitude;
}

inline double bf16_value(unsigned bits) { return binary_float_value(bits & 0xffffu, 8, 7); }
inline double f16_value(unsigned bits) { return binary_float_value(bits & 0xffffu, 5, 10); }
inline double f32_value(std::uint32_t bits) { return binary_float_value(bits, 8, 23); }

}  // namespace w4moe::test
