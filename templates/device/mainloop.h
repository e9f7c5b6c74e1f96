// The GEMM loop of the portable family: weights stream from global memory straight into registers in fragment order, tokens pass
// through shared memory, and each warp adds the K share it owns into its own fp32 fragments.
#pragma once

#include "device/dequant.h"
#include "device/token_stage.h"

namespace w4moe {

/// Fragments of one warp: strips x token tiles x the four values of an m16n8 accumulator.
template <Variant V>
struct Accumulators {
  static constexpr i32 kStrips = V.tile.strips_per_warp;
  static constexpr i32 kTiles = V.tile.block_rows / 8;
  float v[kStrips][kTiles][4];
};

/// Adds one unit (64 K) of every strip the warp holds.
template <Variant V, class Stage>
W4MOE_INLINE void add_unit(Accumulators<V>& acc, const UnitRegisters<V.format> (&units)[V.tile.strips_per_warp],
                           const Stage& stage, i64 stage_index, i64 stage_unit) {
  constexpr i32 kStrips = V.tile.strips_per_warp;
  constexpr i32 kTiles = V.tile.block_rows / 8;
  constexpr bool kOnAccumulator = scales_on_accumulator(V.format, V.dtype);
#pragma unroll
  for (i32 p = 0; p < 2; ++p) {
    u32 a0[kStrips][4];
    u32 a1[kStrips][4];
    float scale[kStrips][2];
#pragma unroll
    for (i32 s = 0; s < kStrips; ++s) {
      if (p == 0) {
        dequantise_step<V.format, V.dtype, 0>(units[s], a0[s]);
        dequantise_step<V.format, V.dtype, 1>(units[s], a1[s]);
      } else {
        dequantise_step<V.format, V.dtype, 2>(units[s], a0[s]);
        dequantise_step<V.format, V.dtype, 3>(units[s], a1[s]);
      }
      if constexpr (kOnAccumulator) {
        scale[s][0] = accumulator_scale<V.format, V.dtype>(units[s], p, 0);
        scale[s][1] = accumulator_scale<V.format, V.dtype>(units[s], p, 1);
      }
    }
#pragma unroll
    for (i32 t = 0; t < kTiles; ++t) {
      u32 b[4];
      ops::load_matrix_x4(b, stage.fragment_row(stage_index, stage_unit, p, t));
#pragma unroll
      for (i32 s = 0; s < kStrips; ++s) {
        if constexpr (kOnAccumulator) {
          float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
          ops::mma_16816<V.dtype>(part, a0[s], b[0], b[1]);
          ops::mma_16816<V.dtype>(part, a1[s], b[2], b[3]);
#pragma unroll
          for (i32 i = 0; i < 4; ++i) acc.v[s][t][i] += part[i] * scale[s][i / 2];
        } else {
          ops::mma_16816<V.dtype>(acc.v[s][t], a0[s], b[0], b[1]);
          ops::mma_16816<V.dtype>(acc.v[s][t], a1[s], b[2], b[3]);
        }
      }
    }
  }
}

/// Runs the whole K of one CTA tile. `weights` points at the expert's first unit; `first_strip` is the CTA's first strip.
/// Ends with a barrier, after which the stages may be reused.
template <Variant V, class Stage>
W4MOE_INLINE void gemm_mainloop(Accumulators<V>& acc, Stage& stage, const u8* weights, i64 first_strip) {
  constexpr GemmTile kTile = V.tile;
  constexpr MatrixLayout kMatrix = V.matrix();
  constexpr i64 kUnits = kMatrix.k_units();
  constexpr i64 kSteps = ceil_div(kUnits, kTile.stage_units());
  constexpr bool kRagged = kUnits % kTile.stage_units() != 0;
  constexpr i32 kDepth = kTile.units_per_warp;
  constexpr i32 kStrips = kTile.strips_per_warp;

  const i32 lane = ops::lane_index();
  const i32 warp_row = ops::warp_index() % kTile.warps_rows;
  const i32 warp_k = ops::warp_index() / kTile.warps_rows;

  // A strip past the last one reads the last: its sums are never stored.
  const u8* strips[kStrips];
#pragma unroll
  for (i32 s = 0; s < kStrips; ++s) {
    const i64 strip = min_of(first_strip + warp_row * kStrips + s, kMatrix.strips() - 1);
    strips[s] = weights + kMatrix.unit_offset_bytes(0, strip, 0);
  }

  UnitRegisters<V.format> ring[kDepth][kStrips];
  const auto load = [&](i64 step, i32 j) {
    const i64 unit = step * kTile.stage_units() + warp_k * kDepth + j;
    if (unit < kUnits) {
#pragma unroll
      for (i32 s = 0; s < kStrips; ++s) load_unit<V.format>(ring[j][s], strips[s] + unit * kMatrix.unit().unit_bytes(), lane);
    }
  };

#pragma unroll
  for (i32 j = 0; j < kDepth; ++j) load(0, j);
#pragma unroll
  for (i32 i = 0; i < kTile.stages - 1; ++i) {
    if (i < kSteps) stage.issue(i);
    ops::copy_commit();
  }
#pragma unroll
  for (i32 s = 0; s < kStrips; ++s) {
#pragma unroll
    for (i32 t = 0; t < kTile.block_rows / 8; ++t) {
#pragma unroll
      for (i32 i = 0; i < 4; ++i) acc.v[s][t][i] = 0.0f;
    }
  }

#pragma unroll 1
  for (i64 step = 0; step < kSteps; ++step) {
    ops::copy_wait<kTile.stages - 2>();
    ops::barrier();  // the stage has landed for all threads, and all are done with the one that is refilled next
    if (step + kTile.stages - 1 < kSteps) stage.issue(step + kTile.stages - 1);
    ops::copy_commit();
#pragma unroll
    for (i32 j = 0; j < kDepth; ++j) {
      const i64 stage_unit = warp_k * kDepth + j;
      if (!kRagged || step * kTile.stage_units() + stage_unit < kUnits) {
        add_unit<V>(acc, ring[j], stage, step, stage_unit);
      }
      load(step + 1, j);
    }
  }
  ops::copy_wait<0>();
  ops::barrier();
}

}  // namespace w4moe
