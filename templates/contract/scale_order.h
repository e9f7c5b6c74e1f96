// How block scales are encoded in the packed unit, and what the encoded values mean to a kernel.
//
// Lanes of a quad (same g = lane / 4) share the scales of rows g and g+8.
//  MXFP4: one word per g. Exponents are windowed to 7 bits, q = byte - base in 0..126 (127 marks NaN), base per expert and
//         projection in {max(2, ...)} so that ordinary checkpoints get base 2 and a global factor of 1. A bf16 with exponent
//         field 128 + q times the raw register (value * 2^-126) is value * 2^(q-125) = value * 2^(byte-127) * 2^(2-base).
//         Group 0: row g at bits 7..13, row g+8 at bits 23..29; group 1: the same after rotating right by 8.
//  MXFP4 wide: one word per g, full bytes: row g group 0, row g+8 group 0, row g group 1, row g+8 group 1 (from bit 0).
//  NVFP4: two words per g, word j covers k16 steps 2j and 2j+1. Scales are unsigned E5M3 with exponent field e + 22 (e = the
//         e4m3 value's exponent, subnormals normalised; 31 with mantissa 7 marks NaN). Even step: row g at bits 4..11, row g+8
//         at bits 20..27; odd step: the same after rotating left by 8. Read as fp16 (<< 3) or, with 0x70007000, as bf16 with
//         raw codes, the product is value * scale * 2^-7 in both types, which the expert's global factor undoes.
//  INT4:  one word per group and g: row g's 16-bit scale low, row g+8's high. Zero points: byte per row and group, in the order
//         row g group 0, row g+8 group 0, row g group 1, row g+8 group 1.
#pragma once

#include "contract/code_order.h"

namespace w4moe {

inline constexpr u32 kMxWindow = 127;        ///< number of exponents the narrow layout can hold
inline constexpr u32 kMxNanCode = 127;       ///< windowed exponent that marks a NaN block (its codes are stored as 0)
inline constexpr u32 kMxDefaultBase = 2;     ///< base with which the packed weight equals the true weight
inline constexpr u32 kE8m0Nan = 255;
inline constexpr i32 kNvExponentBias = 22;   ///< E5 field of an e4m3 exponent e is e + 22
inline constexpr u32 kNvNanByte = 0xff;      ///< E5M3 pattern that reads as NaN in bf16 and fp16
inline constexpr float kNvGlobalFactor = 128.0f;  ///< undoes the 2^-7 of the packed product

/// Bits of an MXFP4 scale word for the four exponents of rows g, g+8 and groups 0, 1 (each 0..127).
W4MOE_HD constexpr u32 mx_scale_word(u32 g0, u32 g8, u32 h0, u32 h8) {
  return (g0 << 7) | (g8 << 23) | rotate_left((h0 << 7) | (h8 << 23), 8);
}

/// bf16 pair (row g low, row g+8 high) of group `group` (0 or 1): 2^(q+1) each; times a raw FP4 register = value * 2^(q-125).
W4MOE_HD constexpr u32 mx_scale_pair_bf16(u32 word, u32 group) {
  return ((group == 0 ? word : rotate_right(word, 8)) & 0x3f803f80u) | 0x40004000u;
}

/// Bits of the fp32 value 2^(q+1) of row g + 8 * half in group 0 or 1; infinity marks NaN blocks, whose codes are zero.
W4MOE_HD constexpr u32 mx_scale_f32_bits(u32 word, u32 group, u32 half) {
  const u32 low = group == 0 ? word << 16 : word << 8;
  const u32 high = group == 0 ? word : rotate_right(word, 8);
  return ((half == 0 ? low : high) & 0x3f800000u) | 0x40000000u;
}

/// The windowed exponent q of row g + 8 * half in group 0 or 1.
W4MOE_HD constexpr u32 mx_scale_exponent(u32 word, u32 group, u32 half) {
  return ((group == 0 ? word : rotate_right(word, 8)) >> (half == 0 ? 7 : 23)) & 0x7fu;
}

/// Byte of row g + 8 * half in group 0 or 1 of a wide MXFP4 word.
W4MOE_HD constexpr u32 mx_wide_byte(u32 word, u32 group, u32 half) { return (word >> (16 * group + 8 * half)) & 0xffu; }

W4MOE_HD constexpr u32 mx_wide_word(u32 g0, u32 g8, u32 h0, u32 h8) { return g0 | (g8 << 8) | (h0 << 16) | (h8 << 24); }

/// Bits of the fp32 value 2^(byte-127); byte 0 is the subnormal 2^-127, byte 255 is infinity (0 * inf makes the NaN).
W4MOE_HD constexpr u32 e8m0_f32_bits(u32 byte) { return byte == 0 ? 0x00400000u : byte << 23; }

/// Word of an NVFP4 unit for two steps: even-step bytes of rows g, g+8 and odd-step bytes of rows g, g+8.
W4MOE_HD constexpr u32 nv_scale_word(u32 e0, u32 e8, u32 o0, u32 o8) {
  return (e0 << 4) | (e8 << 20) | rotate_right((o0 << 4) | (o8 << 20), 8);
}

/// bf16 pair of the even (step 0) or odd (step 1) step.
W4MOE_HD constexpr u32 nv_scale_pair_bf16(u32 word, u32 step) {
  return ((step == 0 ? word : rotate_left(word, 8)) & 0x0ff00ff0u) | 0x70007000u;
}

/// fp16 pair of the even or odd step.
W4MOE_HD constexpr u32 nv_scale_pair_f16(u32 word, u32 step) {
  return ((step == 0 ? word : rotate_left(word, 8)) & 0x0ff00ff0u) << 3;
}

/// Encodes an e4m3 magnitude (sign removed). Zero becomes an arbitrary finite scale: the packer zeroes its codes.
W4MOE_HD constexpr u32 nv_encode_e4m3(u32 byte) {
  const u32 magnitude = byte & 0x7fu;
  if (magnitude == 0x7fu) return kNvNanByte;
  u32 exponent = magnitude >> 3;
  u32 mantissa = magnitude & 7u;
  i32 e = static_cast<i32>(exponent) - 7;
  if (exponent == 0) {  // subnormal: mantissa * 2^-9, brought to 1.xxx form
    if (mantissa == 0) return static_cast<u32>(kNvExponentBias) << 3;
    e = -6;
    while (mantissa < 8) {
      mantissa <<= 1;
      --e;
    }
    mantissa &= 7u;
  }
  return (static_cast<u32>(e + kNvExponentBias) << 3) | mantissa;
}

}  // namespace w4moe
