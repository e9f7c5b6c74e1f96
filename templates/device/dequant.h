// Packed words to register-A fragments, exactly: one k16 step at a time, for every format and both activation types.
#pragma once

#include "contract/variant.h"
#include "device/ops.h"

namespace w4moe {

/// What one lane holds of one packed unit.
template <QuantFormat F>
struct UnitRegisters {
  static constexpr i32 kScaleWords = static_cast<i32>(UnitLayout{F}.scale_bytes_per_pair() / 4);
  u32 code[4];
  u32 scale[kScaleWords];
  u32 zero;
};

/// Reads one unit of a lane from global memory, past L1: `codes`, `scales` and `zeros` are the lane's own addresses.
template <QuantFormat F>
W4MOE_INLINE void load_unit_parts(UnitRegisters<F>& r, const u8* codes, const u8* scales, const u8* zeros) {
  const ops::U32x4 c = ops::load_stream_u32x4(codes);
#pragma unroll
  for (i32 i = 0; i < 4; ++i) r.code[i] = c.v[i];
  if constexpr (UnitRegisters<F>::kScaleWords == 2) {
    const ops::U32x2 w = ops::load_stream_u32x2(scales);
    r.scale[0] = w.v[0];
    r.scale[1] = w.v[1];
  } else {
    r.scale[0] = ops::load_stream_u32(scales);
  }
  if constexpr (F.has_zero_point) {
    r.zero = UnitLayout{F}.zero_bytes_per_pair() == 4 ? ops::load_stream_u32(zeros) : ops::load_stream_u16(zeros);
  }
}

/// Reads one unit from global memory; each lane its own 16 bytes of codes and the scales of its row pair.
template <QuantFormat F>
W4MOE_INLINE void load_unit(UnitRegisters<F>& r, const u8* unit) {
  constexpr UnitLayout layout{F};
  const i32 lane = ops::lane_index();
  load_unit_parts<F>(r, unit + lane * kLaneCodeBytes, unit + layout.pair_scale_offset_bytes(lane / 4),
                     unit + layout.pair_zero_offset_bytes(lane / 4));
}

/// Reads one unit from shared memory; each lane its own 16 bytes of codes and the scales of its row pair.
template <QuantFormat F>
W4MOE_INLINE void load_shared_unit(UnitRegisters<F>& r, const u8* unit) {
  constexpr UnitLayout layout{F};
  const i32 lane = ops::lane_index();
  const ops::U32x4 codes = ops::load_shared_x4(unit + lane * kLaneCodeBytes);
  const u32* scales = reinterpret_cast<const u32*>(unit + layout.pair_scale_offset_bytes(lane / 4));
#pragma unroll
  for (i32 i = 0; i < UnitRegisters<F>::kScaleWords; ++i) r.scale[i] = scales[i];
  if constexpr (F.has_zero_point) {
    const u8* zeros = unit + layout.pair_zero_offset_bytes(lane / 4);
    r.zero = layout.zero_bytes_per_pair() == 4 ? *reinterpret_cast<const u32*>(zeros) : *reinterpret_cast<const u16*>(zeros);
  }
#pragma unroll
  for (i32 i = 0; i < 4; ++i) r.code[i] = codes.v[i];
}

/// Moves raw FP4 registers from their bf16 places (value * 2^-126) to fp16 places (value * 2^-14).
W4MOE_INLINE u32 fp4_to_f16_places(u32 r) { return (r & 0x80008000u) | ((r << 3) & 0x0e000e00u); }

/// A fragment of k16 step `Step` (0..3). Rows g are registers 0 and 2, rows g + 8 registers 1 and 3.
/// FP4 whose scales go on the weight yields the scaled weight (NVFP4: times 2^-7); otherwise see accumulator_scale().
template <QuantFormat F, DType T, i32 Step>
W4MOE_INLINE void dequantise_step(const UnitRegisters<F>& u, u32 (&a)[4]) {
  if constexpr (F.is_int4()) {
    constexpr u32 kBase = T == DType::bf16 ? 0x43004300u : 0x64006400u;  // 128 or 1024 in each half: codes become integers
    u32 zero_g = kBase | (kInt4SymmetricZero * 0x00010001u);
    u32 zero_g8 = zero_g;
    if constexpr (F.has_zero_point) {
      constexpr u32 kGroup = UnitLayout{F}.groups() == 2 ? Step / 2 : 0;
      zero_g = kBase | (((u.zero >> (16 * kGroup)) & 0xffu) * 0x00010001u);
      zero_g8 = kBase | (((u.zero >> (16 * kGroup + 8)) & 0xffu) * 0x00010001u);
    }
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      a[i] = ops::sub2<T>(int4_unpack(u.code[Step], i) | kBase, (i & 1) == 0 ? zero_g : zero_g8);
    }
  } else {
    constexpr i32 kPair = Step & ~1;
    if constexpr ((Step & 1) == 0) {
      fp4_unpack_even(u.code[kPair], u.code[kPair + 1], a);
    } else {
      fp4_unpack_odd(u.code[kPair], u.code[kPair + 1], a);
    }
    if constexpr (T == DType::f16) {
#pragma unroll
      for (i32 i = 0; i < 4; ++i) a[i] = fp4_to_f16_places(a[i]);
    }
    if constexpr (!scales_on_accumulator(F, T)) {
      u32 pair;
      if constexpr (F.is_mxfp4()) {
        pair = mx_scale_pair_bf16(u.scale[0], Step / 2);
      } else {
        pair = T == DType::bf16 ? nv_scale_pair_bf16(u.scale[Step / 2], Step & 1)
                                : nv_scale_pair_f16(u.scale[Step / 2], Step & 1);
      }
      const u32 row_g = ops::broadcast_lo(pair);
      const u32 row_g8 = ops::broadcast_hi(pair);
#pragma unroll
      for (i32 i = 0; i < 4; ++i) a[i] = ops::mul2<T>(a[i], (i & 1) == 0 ? row_g : row_g8);
    } else if constexpr (F.wide_exponent) {
      constexpr u32 kLift = T == DType::bf16 ? 0x7e807e80u : 0x74007400u;  // 2^126, 2^14: codes become their values
#pragma unroll
      for (i32 i = 0; i < 4; ++i) a[i] = ops::mul2<T>(a[i], kLift);
    }
  }
}

/// fp32 factor of row g + 8 * half for the 32 K of steps 2 p and 2 p + 1, where scales go on the accumulator.
template <QuantFormat F, DType T>
W4MOE_INLINE float accumulator_scale(const UnitRegisters<F>& u, u32 p, u32 half) {
  if constexpr (F.is_int4()) {
    const u32 word = u.scale[UnitRegisters<F>::kScaleWords == 2 ? p : 0];
    if constexpr (F.scale == ScaleType::bf16) {
      return half == 0 ? ops::unpack_lo<DType::bf16>(word) : ops::unpack_hi<DType::bf16>(word);
    } else {
      return half == 0 ? ops::unpack_lo<DType::f16>(word) : ops::unpack_hi<DType::f16>(word);
    }
  } else if constexpr (F.wide_exponent) {
    return ops::float_of(e8m0_f32_bits(mx_wide_byte(u.scale[0], p, half)));
  } else {
    // fp16 with narrow MXFP4: raw codes are value * 2^-14, so the factor is 2^(q - 125 + 14); a NaN block's zeros meet infinity.
    const u32 q = mx_scale_exponent(u.scale[0], p, half);
    return ops::float_of(q == kMxNanCode ? 0x7f800000u : (q + 16) << 23);
  }
}

}  // namespace w4moe
