// A consumer warpgroup of the wgmma family: packed units from shared memory become the A operand of the next wgmma group while
// the groups before it run.
#pragma once

#include "device/dequant.h"
#include "device/wgmma_shared.h"

namespace w4moe {

template <Variant V, i32 Width>
struct WgmmaConsumer {
  static constexpr WgmmaTile kTile = V.wgmma;
  static constexpr MatrixLayout kMatrix = V.matrix();
  static constexpr i32 kUnitBytes = static_cast<i32>(kMatrix.unit().unit_bytes());
  static constexpr i32 kBlocks = kTile.blocks_per_group;
  static constexpr i32 kGroup = kTile.steps_per_group;
  static constexpr i32 kUnitGroups = static_cast<i32>(kUnitSteps) / kGroup;
  static constexpr i32 kStageUnits = kTile.stage_units;
  static constexpr i32 kSteps = static_cast<i32>(ceil_div(kMatrix.k_units(), kStageUnits));
  static constexpr i32 kLastUnits = static_cast<i32>(kMatrix.k_units()) - (kSteps - 1) * kStageUnits;
  /// The group of a unit behind whose start the next unit is fetched: one group before it is unpacked, where there is one.
  static constexpr i32 kFetchGroup = kUnitGroups > 1 ? kUnitGroups - 2 : 0;
  static constexpr u64 kUnitTokens = static_cast<u64>(kTile.token_unit_bytes() / 16);
  static_assert(kStageUnits * kUnitGroups % 2 == 0, "the two operand buffers alternate over a stage");

  using Units = UnitRegisters<V.format>;

  const WgmmaShared<V>& shared;
  RingCursor<kTile.stages>& stage;   ///< the stage after the one in use
  i32 first_strip;                   ///< of this warp, inside the tile
  i32 stride;                        ///< bytes between its group's units along K
  i32 previous = -1;                 ///< the stage to free, or -1
  bool more = false;                 ///< a further stage of this tile follows
  Units units[kBlocks];
  Units next[kBlocks];
  u32 a[2][kBlocks][kGroup][4];
  float acc[kBlocks][Width / 2];

  /// A warp's strips are neighbours, so that its outputs are. A warp past the matrix works on what lies in shared memory.
  W4MOE_INLINE WgmmaConsumer(const WgmmaShared<V>& s, RingCursor<kTile.stages>& ring, i32 row_tile)
      : shared(s), stage(ring), first_strip(ops::warp_index() * kBlocks) {
    const i64 strip = min_of(row_tile * kTile.tile_strips() + first_strip, kMatrix.strips() - 1);
    stride = static_cast<i32>(kMatrix.unit_stride_bytes(strip));
    // Zeroed rather than left to the first wgmma: a register that it reads undefined is live from the kernel's entry.
#pragma unroll
    for (i32 b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (i32 i = 0; i < Width / 2; ++i) acc[b][i] = 0.0f;
    }
  }

  W4MOE_INLINE void fetch(Units (&to)[kBlocks], i32 at, i32 unit) const {
    const u8* group = shared.weights(at, first_strip / static_cast<i32>(kGroupStrips)) + unit * stride;
#pragma unroll
    for (i32 b = 0; b < kBlocks; ++b) load_shared_unit<V.format>(to[b], group + (first_strip % kGroupStrips + b) * kUnitBytes);
  }

  /// The warp is done with a stage: what all its lanes have read of it comes before the one arrival.
  W4MOE_INLINE void free_stage(i32 at) const {
    ops::warp_sync();
    if (ops::lane_index() == 0) ops::async_barrier_arrive(shared.empty(at));
  }

  W4MOE_INLINE void wait_full() const {
    ops::async_barrier_wait(shared.full(stage.index), stage.parity);
    ops::fence_async_shared();  // the tokens came by copies of the generic proxy
  }

  template <i32 Step>
  static W4MOE_INLINE void unpack_step(const Units (&u)[kBlocks], u32 (&to)[kBlocks][kGroup][4]) {
#pragma unroll
    for (i32 b = 0; b < kBlocks; ++b) dequantise_step<V.format, V.dtype, Step>(u[b], to[b][Step % kGroup]);
  }

  /// Unpacks group Q of a unit: k16 steps Q * kGroup and on.
  template <i32 Q>
  static W4MOE_INLINE void unpack_group(const Units (&u)[kBlocks], u32 (&to)[kBlocks][kGroup][4]) {
    unpack_step<Q * kGroup>(u, to);
    if constexpr (kGroup > 1) unpack_step<Q * kGroup + 1>(u, to);
    if constexpr (kGroup > 2) {
      unpack_step<Q * kGroup + 2>(u, to);
      unpack_step<Q * kGroup + 3>(u, to);
    }
  }

  /// Starts the wgmmas of one group; a k16 step of tokens is two vectors further along K.
  W4MOE_INLINE void start(const u32 (&from)[kBlocks][kGroup][4], u64 tokens) {
    ops::wgmma_fence();
#pragma unroll
    for (i32 s = 0; s < kGroup; ++s) {
#pragma unroll
      for (i32 b = 0; b < kBlocks; ++b) ops::WgmmaRs<V.dtype, Width>::add(acc[b], from[b][s], tokens + 2 * s);
    }
    ops::wgmma_commit();
  }

  /// Whether unit U of the stage in use exists: the last stage may be short.
  template <i32 U>
  W4MOE_INLINE bool has_unit() const {
    return U < kStageUnits && (kLastUnits == kStageUnits || U < kLastUnits || more);
  }

  /// Runs group Q of unit U: starts it, and behind it fetches and unpacks what comes next.
  template <i32 U, i32 Q>
  W4MOE_INLINE void run_group(i32 at, u64 tokens) {
    constexpr i32 kBuffer = (U * kUnitGroups + Q) % 2;
    start(a[kBuffer], tokens + U * kUnitTokens + 2 * Q * kGroup);
    if constexpr (Q == kFetchGroup) {
      if (has_unit<U + 1>()) {
        fetch(next, at, U + 1);
      } else if (more) {
        wait_full();
        fetch(next, stage.index, 0);
      }
    }
    ops::wgmma_wait<1>();  // the group before this one is done: its operand buffer is free, and so is the stage it was last to read
    if constexpr (U == 0 && Q == 0) {
      if (previous >= 0) free_stage(previous);
    }
    if constexpr (Q + 1 < kUnitGroups) {
      unpack_group<Q + 1>(units, a[kBuffer ^ 1]);
    } else {
      unpack_group<0>(next, a[kBuffer ^ 1]);
#pragma unroll
      for (i32 b = 0; b < kBlocks; ++b) units[b] = next[b];
    }
  }

  template <i32 U>
  W4MOE_INLINE void run_unit(i32 at, u64 tokens) {
    run_group<U, 0>(at, tokens);
    if constexpr (kUnitGroups > 1) run_group<U, 1>(at, tokens);
    if constexpr (kUnitGroups > 2) {
      run_group<U, 2>(at, tokens);
      run_group<U, 3>(at, tokens);
    }
    if constexpr (U + 1 < kStageUnits) {
      if (has_unit<U + 1>()) run_unit<U + 1>(at, tokens);
    }
  }

  /// The whole K of one tile. The ring cursor stands at its first stage, and afterwards past its last.
  W4MOE_INLINE void run() {
    wait_full();
    fetch(units, stage.index, 0);
    unpack_group<0>(units, a[0]);
#pragma unroll 1
    for (i32 step = 0; step < kSteps; ++step) {
      const i32 at = stage.index;
      stage = stage.after();
      more = step + 1 < kSteps;
      run_unit<0>(at, ops::wgmma_tokens(shared.tokens(at)));
      previous = at;
    }
    ops::wgmma_wait<0>();
    free_stage(previous);
  }
};

}  // namespace w4moe
