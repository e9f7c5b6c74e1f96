// A single token: one warp multiplies consecutive units of a strip with a row that lies in shared memory.
#pragma once

#include "device/dequant.h"

namespace w4moe {

/// MXFP4 in bf16 skips the multiply of every weight by its scale: raw codes, which are value * 2^-126, meet a row lifted by 2^64, and
/// the scale multiplies the fp32 sum of its 32 K. The lift keeps the products normal and is undone in the last factor.
template <Variant V>
constexpr bool kLiftsRow = V.format.is_mxfp4() && !scales_on_accumulator(V.format, V.dtype);
inline constexpr u32 kLiftBf16x2 = 0x5f805f80u;        // 2^64 in each half
inline constexpr float kUnlift = 5.42101086242752217e-20f;  // 2^-64

template <Variant V>
struct DirectWarp {
  static constexpr MatrixLayout kMatrix = V.matrix();
  static constexpr UnitLayout kUnit = kMatrix.unit();
  static constexpr i32 kDepth = V.tile.units_per_warp;
  static constexpr bool kFixedStride = kMatrix.groups_are_whole();
  static constexpr i32 kStride = static_cast<i32>(kMatrix.unit_stride_bytes(0));
  static constexpr i32 kRowUnitBytes = static_cast<i32>(kUnitK) * 2;
  static constexpr i32 kRowVectors = kRowUnitBytes / 16;

  UnitRegisters<V.format> slots[kDepth];
  const u8* codes;    // this lane's codes, scales and zero points of the unit that the next round starts at
  const u8* scales;
  const u8* zeros;
  i32 strip_stride;   // read only where kFixedStride is false
  i32 count;

  W4MOE_INLINE i32 stride() const { return kFixedStride ? kStride : strip_stride; }

  /// Puts the first units of `units` under way; `unit` is the first one in memory.
  W4MOE_INLINE void start(const u8* unit, i64 strip, i32 units) {
    const i32 lane = ops::lane_index();
    codes = unit + lane * kLaneCodeBytes;
    scales = unit + kUnit.pair_scale_offset_bytes(lane / 4);
    zeros = unit + kUnit.pair_zero_offset_bytes(lane / 4);
    strip_stride = static_cast<i32>(kMatrix.unit_stride_bytes(strip));
    count = units;
#pragma unroll
    for (i32 j = 0; j < kDepth; ++j) {
      slots[j] = UnitRegisters<V.format>{};
      if (j < count) load(j, j);
    }
  }

  W4MOE_INLINE void load(i32 slot, i32 ahead) {
    load_unit_parts<V.format>(slots[slot], codes + ahead * stride(), scales + ahead * stride(), zeros + ahead * stride());
  }

  /// The sums of rows g and g + 8 of the strip over the units; `row` is the first unit's 64 columns in shared memory, lifted where
  /// kLiftsRow. Every column of B is the row, so that column 0 of the fragment holds the token.
  W4MOE_INLINE void run(ops::SharedAddress row, float& low, float& high) {
    ops::SharedAddress at = row + ops::lane_index() / 8 * 16;
    i32 u = 0;
#pragma unroll 1
    for (; u + 2 * kDepth <= count; u += kDepth) {
#pragma unroll
      for (i32 j = 0; j < kDepth; ++j) {
        add_unit(slots[j], at + j * kRowUnitBytes, low, high);
        load(j, j + kDepth);
      }
      advance(at);
    }
#pragma unroll 1
    for (; u < count; u += kDepth) {
#pragma unroll
      for (i32 j = 0; j < kDepth; ++j) {
        if (u + j < count) add_unit(slots[j], at + j * kRowUnitBytes, low, high);
        if (u + j + kDepth < count) load(j, j + kDepth);
      }
      advance(at);
    }
  }

  W4MOE_INLINE void advance(ops::SharedAddress& at) {
    codes += kDepth * stride();
    scales += kDepth * stride();
    zeros += kDepth * stride();
    at += kDepth * kRowUnitBytes;
  }

  static W4MOE_INLINE void add_unit(const UnitRegisters<V.format>& unit, ops::SharedAddress row, float& low, float& high) {
    if constexpr (kLiftsRow<V> || scales_on_accumulator(V.format, V.dtype)) {
      add_half<0>(unit, row, low, high);
      add_half<1>(unit, row + 64, low, high);
    } else {
      float sum[4];
      u32 b[4];
      u32 w[4];
      ops::load_matrix_x4(b, row);
      dequantise_step<V.format, V.dtype, 0>(unit, w);
      ops::mma_16816_zero<V.dtype>(sum, w, b[0], b[1]);
      dequantise_step<V.format, V.dtype, 1>(unit, w);
      ops::mma_16816<V.dtype>(sum, w, b[2], b[3]);
      ops::load_matrix_x4(b, row + 64);
      dequantise_step<V.format, V.dtype, 2>(unit, w);
      ops::mma_16816<V.dtype>(sum, w, b[0], b[1]);
      dequantise_step<V.format, V.dtype, 3>(unit, w);
      ops::mma_16816<V.dtype>(sum, w, b[2], b[3]);
      low += sum[0];
      high += sum[2];
    }
  }

  /// The 32 K of steps 2 P and 2 P + 1, whose scale goes on their sum.
  template <i32 P>
  static W4MOE_INLINE void add_half(const UnitRegisters<V.format>& unit, ops::SharedAddress row, float& low, float& high) {
    u32 even[4];
    u32 odd[4];
    u32 b[4];
    float sum[4];
    float scale_low;
    float scale_high;
    ops::load_matrix_x4(b, row);
    if constexpr (kLiftsRow<V>) {
      fp4_unpack_even(unit.code[2 * P], unit.code[2 * P + 1], even);
      fp4_unpack_odd(unit.code[2 * P], unit.code[2 * P + 1], odd);
      scale_low = ops::float_of(mx_scale_f32_bits(unit.scale[0], P, 0));
      scale_high = ops::float_of(mx_scale_f32_bits(unit.scale[0], P, 1));
    } else {
      dequantise_step<V.format, V.dtype, 2 * P>(unit, even);
      dequantise_step<V.format, V.dtype, 2 * P + 1>(unit, odd);
      scale_low = accumulator_scale<V.format, V.dtype>(unit, P, 0);
      scale_high = accumulator_scale<V.format, V.dtype>(unit, P, 1);
    }
    ops::mma_16816_zero<V.dtype>(sum, even, b[0], b[1]);
    ops::mma_16816<V.dtype>(sum, odd, b[2], b[3]);
    low += sum[0] * scale_low;
    high += sum[2] * scale_high;
  }
};

/// Copies 16-byte vectors of a row of `TailRule` columns to shared memory, zero past its end, and lifts them where kLiftsRow. Thread
/// `first` of `step` threads; a barrier among them must follow.
template <Variant V>
W4MOE_INLINE void stage_row(const u8* from, u8* to, i32 first, i32 last, i32 step) {
  constexpr TailRule kTail{V.matrix().k, 0};
  for (i32 i = first; i < last; i += step) {
    const i64 valid = from == nullptr ? 0 : kTail.valid_vector_bytes(i * kRowVectorElems, 2);
    ops::copy16_async(ops::shared_address(to + i * 16), valid > 0 ? from + i * 16 : from, static_cast<i32>(valid));
  }
  ops::copy_commit();
  ops::copy_wait<0>();
  if constexpr (kLiftsRow<V>) {
    for (i32 i = first; i < last; i += step) {
      ops::U32x4 v = ops::load_shared_x4(to + i * 16);
#pragma unroll
      for (i32 j = 0; j < 4; ++j) v.v[j] = ops::mul2<V.dtype>(v.v[j], kLiftBf16x2);
      ops::store_shared_x4(ops::shared_address(to + i * 16), v);
    }
  }
}

}  // namespace w4moe
