// The consumer side of the register-A kernels: packed units from shared memory are unpacked into the A operand of the next
// wgmma while the previous one runs.
#pragma once

#include "device/dequant.h"
#include "device/wgmma_work.h"

namespace w4moe {

/// Register-A fragment of one k16 step with the scale already on the weight. INT4 rounds code * scale once to T; FP4 is exact.
template <QuantFormat F, DType T, i32 Step>
W4MOE_INLINE void scaled_step(const UnitRegisters<F>& u, u32 (&a)[4]) {
  dequantise_step<F, T, Step>(u, a);
  if constexpr (F.is_int4()) {
    const u32 pair = int4_scale_pair<F, T>(u, Step / 2);
    const u32 row_g = ops::broadcast_lo(pair);
    const u32 row_g8 = ops::broadcast_hi(pair);
#pragma unroll
    for (i32 i = 0; i < 4; ++i) a[i] = ops::mul2<T>(a[i], (i & 1) == 0 ? row_g : row_g8);
  }
}

template <Variant V, i32 Width>
struct WgmmaConsumer {
  static constexpr WgmmaTile kTile = V.wgmma;
  static constexpr MatrixLayout kMatrix = V.matrix();
  static constexpr i64 kUnitBytes = kMatrix.unit().unit_bytes();
  static constexpr i32 kBlocks = kTile.blocks_per_group;
  static constexpr i64 kSteps = ceil_div(kMatrix.k_units(), kTile.stage_units);
  static constexpr i32 kStageGroups = kTile.stage_units * static_cast<i32>(kUnitSteps);  // wgmma groups (k16 steps) per stage
  static constexpr i32 kLastUnits = static_cast<i32>(kMatrix.k_units() - (kSteps - 1) * kTile.stage_units);
  static_assert(kStageGroups % 2 == 0, "the two A buffers alternate over a stage");

  float acc[kBlocks][Width / 2];

  W4MOE_INLINE void clear() {
#pragma unroll
    for (i32 b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (i32 i = 0; i < Width / 2; ++i) acc[b][i] = 0.0f;
    }
  }

  using Units = UnitRegisters<V.format>;

  static W4MOE_INLINE void load_units(Units (&u)[kBlocks], const WgmmaShared<V>& shared, i32 stage, i32 unit, i32 first_strip) {
#pragma unroll
    for (i32 b = 0; b < kBlocks; ++b) load_shared_unit<V.format>(u[b], shared.weights(stage, first_strip + b) + unit * kUnitBytes);
  }

  template <i32 Step>
  static W4MOE_INLINE void unpack(const Units (&u)[kBlocks], u32 (&a)[kBlocks][4]) {
#pragma unroll
    for (i32 b = 0; b < kBlocks; ++b) scaled_step<V.format, V.dtype, Step>(u[b], a[b]);
  }

  W4MOE_INLINE void issue(const u32 (&a)[kBlocks][4], u64 tokens) {
    ops::wgmma_fence();
#pragma unroll
    for (i32 b = 0; b < kBlocks; ++b) ops::WgmmaRs<V.dtype, Width>::add(acc[b], a[b], tokens);
    ops::wgmma_commit();
  }

  /// The whole K of one tile. `stage` is the ring position of its first stage and is moved past its last.
  W4MOE_INLINE void run(const WgmmaShared<V>& shared, RingCursor<kTile.stages>& stage) {
    const i32 warp = ops::warp_index();
    const i32 first_strip = warp * kBlocks;  // a warp's strips are neighbours, so that its outputs are
    u32 a[2][kBlocks][4];
    Units units[kBlocks];
    clear();

    ops::async_barrier_wait(shared.full(stage.index), stage.parity);
    load_units(units, shared, stage.index, 0, first_strip);
    unpack<0>(units, a[0]);

    i32 previous = -1;
#pragma unroll 1
    for (i64 step = 0; step < kSteps; ++step) {
      const i32 at = stage.index;
      stage.next();
      const bool more = step + 1 < kSteps;
#pragma unroll
      for (i32 unit = 0; unit < kTile.stage_units; ++unit) {
        if (kLastUnits != kTile.stage_units && unit >= kLastUnits && !more) break;
        const u64 tokens = ops::wgmma_tokens(shared.tokens(at, unit));
        issue(a[0], tokens);
        unpack_after_wait<1>(units, a[1]);
        if (unit == 0 && previous >= 0 && ops::lane_index() == 0) ops::async_barrier_arrive(shared.empty(previous));
        issue(a[1], tokens + 2);
        unpack_after_wait<2>(units, a[0]);
        issue(a[0], tokens + 4);
        unpack_after_wait<3>(units, a[1]);
        issue(a[1], tokens + 6);
        // The next unit's first step: in this stage, or in the next one once it has landed.
        const bool here = unit + 1 < kTile.stage_units && (kLastUnits == kTile.stage_units || more || unit + 1 < kLastUnits);
        if (here) {
          load_units(units, shared, at, unit + 1, first_strip);
        } else if (more) {
          ops::async_barrier_wait(shared.full(stage.index), stage.parity);
          load_units(units, shared, stage.index, 0, first_strip);
        }
        unpack_after_wait<0>(units, a[0]);
      }
      previous = at;
    }
    ops::wgmma_wait<0>();
    if (ops::lane_index() == 0) ops::async_barrier_arrive(shared.empty(previous));
  }

  /// Unpacks a step into the buffer that the group before the last reads: once that one is done.
  template <i32 Step>
  static W4MOE_INLINE void unpack_after_wait(const Units (&u)[kBlocks], u32 (&a)[kBlocks][4]) {
    ops::wgmma_wait<1>();
    unpack<Step>(u, a);
  }
};

}  // namespace w4moe
