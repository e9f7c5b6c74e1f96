// 16-bit floats on the host: exact widening, and rounding to nearest even.
#pragma once

#include <bit>
#include <cmath>

#include "contract/types.h"

namespace w4moe {

inline float float_of_bf16(u16 bits) { return std::bit_cast<float>(static_cast<u32>(bits) << 16); }

inline float float_of_f16(u16 bits) {
  const u32 sign = static_cast<u32>(bits & 0x8000u) << 16;
  const u32 exponent = (bits >> 10) & 31u;
  const u32 mantissa = bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

inline u16 bf16_of(float value) {
  const u32 bits = std::bit_cast<u32>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<u16>((bits >> 16) | 0x40u);  // a NaN stays one
  return static_cast<u16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline u16 f16_of(float value) {
  const u32 bits = std::bit_cast<u32>(value);
  const u32 sign = (bits >> 16) & 0x8000u;
  const u32 magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<u16>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<u16>(sign | 0x7c00u);  // 65520 and more round to infinity
  if (magnitude < 0x38800000u) {                                         // below 2^-14: a multiple of 2^-24
    const float scaled = std::bit_cast<float>(magnitude) * 16777216.0f;
    return static_cast<u16>(sign | static_cast<u32>(std::nearbyint(scaled)));
  }
  const u32 rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<u16>(sign | ((rounded - 0x38000000u) >> 13));
}

/// Bits to float and back for the two activation types.
inline float float_of(DType dtype, u16 bits) { return dtype == DType::f16 ? float_of_f16(bits) : float_of_bf16(bits); }
inline u16 bits_of(DType dtype, float value) { return dtype == DType::f16 ? f16_of(value) : bf16_of(value); }

}  // namespace w4moe
