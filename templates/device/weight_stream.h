// The weight side of a portable GEMM: one warp's units on their way from global memory straight into registers, in fragment order.
#pragma once

#include "device/dequant.h"

namespace w4moe {

/// A warp's ring of units: `units_per_warp` deep, one unit of each of its strips per slot. Slot j always holds the warp's j-th
/// unit of a stage; it is refilled with the next stage's as soon as it has been used.
template <Variant V>
struct WeightStream {
  static constexpr GemmTile kTile = V.tile;
  static constexpr MatrixLayout kMatrix = V.matrix();
  static constexpr UnitLayout kUnit = kMatrix.unit();
  static constexpr i32 kStrips = kTile.strips_per_warp;
  static constexpr i32 kDepth = kTile.units_per_warp;
  static constexpr i32 kUnits = static_cast<i32>(kMatrix.k_units());
  static constexpr i32 kStageUnits = static_cast<i32>(kTile.stage_units());
  /// Distance of the strips' units along K: one for the tile, and a constant unless the last group of strips is short.
  static_assert(kGroupStrips % kTile.tile_strips() == 0, "a tile lies inside one group of strips");
  static constexpr bool kFixedStride = kMatrix.groups_are_whole();
  static constexpr i32 kStride = static_cast<i32>(kMatrix.unit_stride_bytes(0));
  static constexpr bool kRagged = kUnits % kStageUnits != 0;

  UnitRegisters<V.format> slots[kDepth][kStrips];
  const u8* codes[kStrips];   // this lane's codes, scales and zero points of slot 0 of the next stage to load
  const u8* scales[kStrips];
  const u8* zeros[kStrips];
  i32 next_unit;
  i32 tile_stride;            // read only where kFixedStride is false

  W4MOE_INLINE i32 stride() const { return kFixedStride ? kStride : tile_stride; }

  /// Starts at the warp's first unit. A strip past the last one reads the last: its sums are never stored.
  W4MOE_INLINE void start(const u8* expert, i64 first_strip) {
    const i32 lane = ops::lane_index();
    const i32 warp_row = ops::warp_index() % kTile.warps_rows;
    tile_stride = static_cast<i32>(kMatrix.unit_stride_bytes(first_strip));
    next_unit = ops::warp_index() / kTile.warps_rows * kDepth;
#pragma unroll
    for (i32 s = 0; s < kStrips; ++s) {
      const i64 strip = min_of(first_strip + warp_row * kStrips + s, kMatrix.strips() - 1);
      const u8* unit = expert + kMatrix.unit_offset_bytes(0, strip, next_unit);
      codes[s] = unit + lane * kLaneCodeBytes;
      scales[s] = unit + kUnit.pair_scale_offset_bytes(lane / 4);
      zeros[s] = unit + kUnit.pair_zero_offset_bytes(lane / 4);
    }
    if constexpr (kRagged) {
      // Units past K keep what their slot held and meet zero tokens: so a slot that is never filled must hold finite values.
#pragma unroll
      for (i32 j = 0; j < kDepth; ++j) {
#pragma unroll
        for (i32 s = 0; s < kStrips; ++s) slots[j][s] = UnitRegisters<V.format>{};
      }
    }
#pragma unroll
    for (i32 j = 0; j < kDepth; ++j) load(j);
    advance();
  }

  /// Refills slot j with its unit of the stage that the pointers stand at; nothing past K is read.
  W4MOE_INLINE void load(i32 j) {
    if (kRagged && next_unit + j >= kUnits) return;
#pragma unroll
    for (i32 s = 0; s < kStrips; ++s) {
      load_unit_parts<V.format>(slots[j][s], codes[s] + j * stride(), scales[s] + j * stride(), zeros[s] + j * stride());
    }
  }

  /// Moves the pointers to the next stage.
  W4MOE_INLINE void advance() {
    next_unit += kStageUnits;
#pragma unroll
    for (i32 s = 0; s < kStrips; ++s) {
      codes[s] += kStageUnits * stride();
      scales[s] += kStageUnits * stride();
      zeros[s] += kStageUnits * stride();
    }
  }

  /// True while the stage that the pointers stand at exists for this warp's first unit.
  W4MOE_INLINE bool more() const { return next_unit < kUnits; }
};

}  // namespace w4moe
