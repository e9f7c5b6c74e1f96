// The GEMM loop of the portable family: weights stream from global memory straight into registers in fragment order, tokens pass
// through shared memory, and each warp adds the K share it owns into its own fp32 fragments.
#pragma once

#include "device/token_stage.h"
#include "device/weight_stream.h"

namespace w4moe {

/// Fragments of one warp: strips x token tiles x the four values of an m16n8 accumulator.
template <Variant V>
struct Accumulators {
  static constexpr i32 kStrips = V.tile.strips_per_warp;
  static constexpr i32 kTiles = V.tile.block_rows / 8;
  float v[kStrips][kTiles][4];

  W4MOE_INLINE void clear() {
#pragma unroll
    for (i32 s = 0; s < kStrips; ++s) {
#pragma unroll
      for (i32 t = 0; t < kTiles; ++t) {
#pragma unroll
        for (i32 i = 0; i < 4; ++i) v[s][t][i] = 0.0f;
      }
    }
  }
};

/// Adds the 32 K of half p of one unit, for every strip the warp holds.
template <Variant V, i32 P, class Stage>
W4MOE_INLINE void add_half_unit(Accumulators<V>& acc, const UnitRegisters<V.format> (&units)[V.tile.strips_per_warp],
                                const Stage& stage, i32 j) {
  constexpr i32 kStrips = V.tile.strips_per_warp;
  u32 a[kStrips][2][4];
  [[maybe_unused]] float scale[kStrips][2];
#pragma unroll
  for (i32 s = 0; s < kStrips; ++s) {
    dequantise_step<V.format, V.dtype, 2 * P>(units[s], a[s][0]);
    dequantise_step<V.format, V.dtype, 2 * P + 1>(units[s], a[s][1]);
    if constexpr (scales_on_accumulator(V.format, V.dtype)) {
      scale[s][0] = accumulator_scale<V.format, V.dtype>(units[s], P, 0);
      scale[s][1] = accumulator_scale<V.format, V.dtype>(units[s], P, 1);
    }
  }
#pragma unroll
  for (i32 t = 0; t < V.tile.block_rows / 8; ++t) {
    // Parts that are scaled before they are added live long; the compiler would start those of all token tiles, and of the next
    // half, at once, and spill.
    if constexpr (scales_on_accumulator(V.format, V.dtype)) {
      if (t % 2 == 0) ops::warp_sync();
    }
    u32 b[4];
    ops::load_matrix_x4(b, stage.fragment_row(j, P, t));
#pragma unroll
    for (i32 s = 0; s < kStrips; ++s) {
      if constexpr (scales_on_accumulator(V.format, V.dtype)) {
        float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        ops::mma_16816<V.dtype>(part, a[s][0], b[0], b[1]);
        ops::mma_16816<V.dtype>(part, a[s][1], b[2], b[3]);
#pragma unroll
        for (i32 i = 0; i < 4; ++i) acc.v[s][t][i] += part[i] * scale[s][i / 2];
      } else {
        ops::mma_16816<V.dtype>(acc.v[s][t], a[s][0], b[0], b[1]);
        ops::mma_16816<V.dtype>(acc.v[s][t], a[s][1], b[2], b[3]);
      }
    }
  }
}

/// Runs the whole K of one CTA tile; `weights` has been started. Ends with a barrier, after which the stages may be reused.
template <Variant V, class Stage>
W4MOE_INLINE void gemm_mainloop(Accumulators<V>& acc, Stage& stage, WeightStream<V>& weights) {
  constexpr GemmTile kTile = V.tile;
  constexpr i32 kSteps = static_cast<i32>(ceil_div(V.matrix().k_units(), kTile.stage_units()));
#pragma unroll
  for (i32 i = 0; i < kTile.stages - 1; ++i) {
    if (i < kSteps) stage.issue();
    ops::copy_commit();
  }
  acc.clear();

#pragma unroll 1
  for (i32 step = 0; step < kSteps; ++step) {
    ops::copy_wait<kTile.stages - 2>();
    ops::barrier();  // the stage has landed for all threads, and all are done with the slot that is refilled next
    if (step + kTile.stages - 1 < kSteps) stage.issue();
    ops::copy_commit();
    const bool more = weights.more();
#pragma unroll
    for (i32 j = 0; j < kTile.units_per_warp; ++j) {
      add_half_unit<V, 0>(acc, weights.slots[j], stage, j);
      add_half_unit<V, 1>(acc, weights.slots[j], stage, j);
      if (more) weights.load(j);
    }
    weights.advance();
    stage.consumed();
  }
  ops::copy_wait<0>();
  ops::barrier();
}

}  // namespace w4moe
