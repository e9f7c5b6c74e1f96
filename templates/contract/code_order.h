// Where the bits of a 4-bit code lie in the packed words, as two inverse functions per code type.
//
// A packed unit is 16 rows x 64 K. Lane l of a warp (g = l / 4, t = l % 4) owns four 32-bit words, one per k16 step, that hold
// its register-A fragment of mma.m16n8k16 and of wgmma alike: register r0 = row g, K 2t..2t+1; r1 = row g+8, same K;
// r2 = row g, K 2t+8..2t+9; r3 = row g+8, K 2t+8..2t+9; the low half of a register is the even K.
//
// FP4. In its register a code s e1 e0 m sits at bits {15, 8, 7, 6} of its half: read as bf16 that is value * 2^-126 (0.5 is a
// subnormal). The words x (even step) and y (odd step) of a pair hold the eight registers rotated, so that 17 operations unpack
// 16 codes: the spare bits that three rotated copies of the mask leave in x and in y together hold the fourth of each.
//
// INT4. Nibble i of each half is register r_i, so that (word >> 4 i) & 0x000f000f is the register's two codes.
#pragma once

#include "contract/prelude.h"

namespace w4moe {

inline constexpr u32 kFp4Mask = 0x81c081c0u;

W4MOE_HD constexpr u32 rotate_left(u32 v, u32 n) { return n == 0 ? v : (v << n) | (v >> (32 - n)); }
W4MOE_HD constexpr u32 rotate_right(u32 v, u32 n) { return rotate_left(v, (32 - n) & 31); }

/// The four bits of an e2m1 code (sign, e1, e0, m) placed in the low half of a register.
W4MOE_HD constexpr u32 fp4_spread(u32 code) { return ((code & 8u) << 12) | ((code & 7u) << 6); }

/// Inverse of fp4_spread for the low half.
W4MOE_HD constexpr u32 fp4_gather(u32 half) { return ((half >> 12) & 8u) | ((half >> 6) & 7u); }

/// Packs the eight masked registers of two k16 steps (r[0..3] of the even step, r[4..7] of the odd step).
W4MOE_HD constexpr void fp4_pack_pair(const u32 (&r)[8], u32& x, u32& y) {
  const u32 x3 = rotate_right(r[3], 8);
  const u32 y3 = rotate_right(r[7], 14);
  x = r[0] | (r[1] >> 4) | rotate_right(r[2], 10) | (x3 & 0x00010001u) | (y3 & 0x06020602u);
  y = (r[4] >> 2) | (r[5] >> 6) | rotate_right(r[6], 12) | (x3 & 0xc080c080u) | (y3 & 0x01000100u);
}

/// Registers r0..r3 of the even step.
W4MOE_HD constexpr void fp4_unpack_even(u32 x, u32 y, u32 (&r)[4]) {
  r[0] = x & kFp4Mask;
  r[1] = (x << 4) & kFp4Mask;
  r[2] = rotate_left(x, 10) & kFp4Mask;
  r[3] = rotate_left((x & 0x00010001u) | (y & 0xc080c080u), 8);
}

/// Registers r0..r3 of the odd step.
W4MOE_HD constexpr void fp4_unpack_odd(u32 x, u32 y, u32 (&r)[4]) {
  r[0] = (y << 2) & kFp4Mask;
  r[1] = (y << 6) & kFp4Mask;
  r[2] = rotate_left(y, 12) & kFp4Mask;
  r[3] = rotate_left((x & 0x06020602u) | (y & 0x01000100u), 14);
}

/// Packs the four registers of one k16 step, two 4-bit codes each at bits 0..3 and 16..19.
W4MOE_HD constexpr u32 int4_pack(const u32 (&r)[4]) { return r[0] | (r[1] << 4) | (r[2] << 8) | (r[3] << 12); }

/// Register i of one k16 step, codes at bits 0..3 and 16..19.
W4MOE_HD constexpr u32 int4_unpack(u32 word, u32 i) { return (word >> (4 * i)) & 0x000f000fu; }

}  // namespace w4moe
