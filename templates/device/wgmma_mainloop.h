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
  static constexpr i32 kGroup = kTile.steps_per_group;
  static constexpr i32 kUnitGroups = static_cast<i32>(kUnitSteps) / kGroup;
  static constexpr i32 kStageUnits = kTile.stage_units;
  static constexpr i32 kSteps = static_cast<i32>(ceil_div(kMatrix.k_units(), kStageUnits));
  static constexpr i32 kLastUnits = static_cast<i32>(kMatrix.k_units()) - (kSteps - 1) * kStageUnits;
  static_assert(kStageUnits * kUnitGroups % 2 == 0, "the two operand buffers alternate over a stage");

  using Units = UnitRegisters<V.format>;
  using Operand = u32[kBlocks][kGroup][4];

  float acc[kBlocks][Width / 2];

  W4MOE_INLINE void clear() {
#pragma unroll
    for (i32 b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (i32 i = 0; i < Width / 2; ++i) acc[b][i] = 0.0f;
    }
  }

  /// This warp's strips of a unit. `stride` is the group's: short for the last group of a matrix.
  static W4MOE_INLINE void load_units(Units (&u)[kBlocks], const WgmmaShared<V>& shared, i32 stage, i32 unit, i32 first_strip, i32 stride) {
    const u8* group = shared.weights(stage, first_strip / static_cast<i32>(kGroupStrips)) + unit * stride;
#pragma unroll
    for (i32 b = 0; b < kBlocks; ++b) load_shared_unit<V.format>(u[b], group + (first_strip % kGroupStrips + b) * kUnitBytes);
  }

  template <i32 Step>
  static W4MOE_INLINE void unpack_step(const Units (&u)[kBlocks], Operand& a) {
#pragma unroll
    for (i32 b = 0; b < kBlocks; ++b) scaled_step<V.format, V.dtype, Step>(u[b], a[b][Step % kGroup]);
  }

  /// Unpacks group `q` of a unit: steps q * kGroup .. of it.
  template <i32 Q>
  static W4MOE_INLINE void unpack_group(const Units (&u)[kBlocks], Operand& a) {
    unpack_step<Q * kGroup>(u, a);
    if constexpr (kGroup > 1) unpack_step<Q * kGroup + 1>(u, a);
    if constexpr (kGroup > 2) {
      unpack_step<Q * kGroup + 2>(u, a);
      unpack_step<Q * kGroup + 3>(u, a);
    }
  }

  /// Starts the wgmmas of one group; a k16 step of tokens is 32 bytes further along K.
  W4MOE_INLINE void issue(const Operand& a, u64 tokens) {
    ops::wgmma_fence();
#pragma unroll
    for (i32 s = 0; s < kGroup; ++s) {
#pragma unroll
      for (i32 b = 0; b < kBlocks; ++b) ops::WgmmaRs<V.dtype, Width>::add(acc[b], a[b][s], tokens + 2 * s);
    }
    ops::wgmma_commit();
  }

  /// What a tile's loop carries along.
  struct Loop {
    const WgmmaShared<V>& shared;
    RingCursor<kTile.stages>& stage;  // the stage after the one in use
    i32 at;                           // the stage in use
    i32 previous;                     // the stage to free, or -1
    i32 first_strip;                  // of this warp, inside the tile
    i32 stride;                       // bytes between its group's units along K
    bool more;                        // a further stage follows
    Units units[kBlocks];
    Operand a[2];
  };

  /// Runs group Q of unit U: starts it, and unpacks the next group behind it.
  template <i32 U, i32 Q>
  W4MOE_INLINE void run_group(Loop& l) {
    constexpr i32 kBuffer = (U * kUnitGroups + Q) % 2;
    issue(l.a[kBuffer], ops::wgmma_tokens(l.shared.tokens(l.at, U)) + 2 * Q * kGroup);
    constexpr bool kUnitEnds = Q + 1 == kUnitGroups;
    if constexpr (kUnitEnds) {
      // The next unit: in this stage where it has one more, else in the next stage once that has landed.
      const bool here = U + 1 < kStageUnits && (kLastUnits == kStageUnits || l.more || U + 1 < kLastUnits);
      if (here) {
        load_units(l.units, l.shared, l.at, U + 1, l.first_strip, l.stride);
      } else if (l.more) {
        ops::async_barrier_wait(l.shared.full(l.stage.index), l.stage.parity);
        load_units(l.units, l.shared, l.stage.index, 0, l.first_strip, l.stride);
      }
    }
    ops::wgmma_wait<1>();  // the group before this one is done: its operand buffer is free, and so is the stage it was last to read
    if constexpr (U == 0 && Q == 0) {
      if (l.previous >= 0 && ops::lane_index() == 0) ops::async_barrier_arrive(l.shared.empty(l.previous));
    }
    unpack_group<kUnitEnds ? 0 : Q + 1>(l.units, l.a[kBuffer ^ 1]);
  }

  template <i32 U>
  W4MOE_INLINE void run_unit(Loop& l) {
    run_group<U, 0>(l);
    if constexpr (kUnitGroups > 1) run_group<U, 1>(l);
    if constexpr (kUnitGroups > 2) {
      run_group<U, 2>(l);
      run_group<U, 3>(l);
    }
    if constexpr (U + 1 < kStageUnits) {
      if (kLastUnits == kStageUnits || l.more || U + 1 < kLastUnits) run_unit<U + 1>(l);
    }
  }

  /// The whole K of one tile. `stage` is the ring position of its first stage and is moved past its last.
  W4MOE_INLINE void run(const WgmmaShared<V>& shared, RingCursor<kTile.stages>& stage, i64 row_tile) {
    // A warp's strips are neighbours, so that its outputs are. A warp past the matrix reads what lies in shared memory.
    const i32 first_strip = ops::warp_index() * kBlocks;
    const i64 strip = min_of(row_tile * kTile.tile_strips() + first_strip, kMatrix.strips() - 1);
    Loop l{shared, stage, 0, -1, first_strip, static_cast<i32>(kMatrix.unit_stride_bytes(strip)), false, {}, {}};
    clear();
    ops::async_barrier_wait(shared.full(stage.index), stage.parity);
    load_units(l.units, shared, stage.index, 0, l.first_strip, l.stride);
    unpack_group<0>(l.units, l.a[0]);
#pragma unroll 1
    for (i32 step = 0; step < kSteps; ++step) {
      l.at = stage.index;
      stage.next();
      l.more = step + 1 < kSteps;
      run_unit<0>(l);
      l.previous = l.at;
    }
    ops::wgmma_wait<0>();
    if (ops::lane_index() == 0) ops::async_barrier_arrive(shared.empty(l.previous));
  }
};

}  // namespace w4moe
