// Work items and shared memory of the register-A kernels, and the producer warpgroup: it owns every load of a tile.
#pragma once

#include "contract/variant.h"
#include "device/ops.h"
#include "device/block_rows.h"

namespace w4moe {

/// Shared memory of a register-A kernel.
template <Variant V>
struct WgmmaShared {
  static constexpr WgmmaTile kTile = V.wgmma;
  static constexpr i64 kUnitBytes = UnitLayout{V.format}.unit_bytes();

  u8* base;

  W4MOE_INLINE u8* tokens(i64 stage, i64 unit) const { return base + kTile.tokens_offset_bytes(stage) + unit * kTile.token_unit_bytes(); }
  W4MOE_INLINE u8* weights(i64 stage, i64 strip) const {
    return base + kTile.weights_offset_bytes(stage, kUnitBytes) + strip * kTile.strip_stage_bytes(kUnitBytes);
  }
  W4MOE_INLINE u8* staging(i64 warp) const { return base + kTile.staging_offset_bytes(kUnitBytes) + warp * kTile.staging_warp_bytes(); }
  W4MOE_INLINE BlockRow* table(i64 index) const {
    return reinterpret_cast<BlockRow*>(base + kTile.tables_offset_bytes(kUnitBytes) + index * kTile.table_bytes());
  }
  W4MOE_INLINE u64* barriers() const { return reinterpret_cast<u64*>(base + kTile.barriers_offset_bytes(kUnitBytes)); }
  W4MOE_INLINE u64* full(i64 stage) const { return barriers() + stage; }
  W4MOE_INLINE u64* empty(i64 stage) const { return barriers() + kTile.stages + stage; }
  W4MOE_INLINE u64* table_empty(i64 index) const { return barriers() + 2 * kTile.stages + index; }

  /// One thread; a CTA barrier must follow. `full` takes the weight announcement and one arrival per producer warp.
  W4MOE_INLINE void init_barriers() const {
    for (i64 s = 0; s < kTile.stages; ++s) {
      ops::async_barrier_init(full(s), 1 + 4);
      ops::async_barrier_init(empty(s), kWgmmaConsumerGroups * 4);
    }
    for (i64 t = 0; t < kWgmmaTables; ++t) ops::async_barrier_init(table_empty(t), kWgmmaConsumerGroups * 4);
    ops::async_barrier_init_fence();
  }
};

/// Position in a ring of `Size` slots: index and the parity that waits use.
template <i32 Size>
struct RingCursor {
  i32 index = 0;
  u32 parity = 0;
  W4MOE_INLINE void next() {
    if (++index == Size) {
      index = 0;
      parity ^= 1;
    }
  }
};

/// Smallest of the variant's widths that holds `rows`.
template <Variant V>
W4MOE_INLINE i32 tile_width(i32 rows) {
  i32 width = V.wgmma.max_width();
#pragma unroll
  for (i32 i = V.wgmma.width_count() - 1; i >= 0; --i) width = rows <= V.wgmma.widths[i] ? V.wgmma.widths[i] : width;
  return width;
}

/// The producer warpgroup. `Rows` fills a block's row table: Rows::row(args, block, r) -> BlockRow.
template <Variant V, class Args, class Rows>
struct WgmmaProducer {
  static constexpr WgmmaTile kTile = V.wgmma;
  static constexpr MatrixLayout kMatrix = V.matrix();
  static constexpr i64 kUnitBytes = kMatrix.unit().unit_bytes();
  static constexpr TailRule kTail{kMatrix.k, 0};
  static constexpr i64 kSteps = ceil_div(kMatrix.k_units(), kTile.stage_units);
  static constexpr i32 kRowsPerPass = kWgmmaGroupThreads / 8;
  static_assert(kTile.tile_strips() <= kLanes, "one lane copies one strip");
  static constexpr i32 kLag = kTile.token_lag();

  /// Weights of one stage: a contiguous run of units per strip. Strips past the matrix read its last strip.
  static W4MOE_INLINE void copy_weights(const WgmmaShared<V>& shared, i32 stage, const u8* expert, i64 first_strip, i64 step) {
    const i32 lane = ops::lane_index();
    const i64 first = step * kTile.stage_units;
    const i64 bytes = min_of(kMatrix.k_units() - first, kTile.stage_units) * kUnitBytes;
    if (lane == 0) ops::async_barrier_expect(shared.full(stage), static_cast<u32>(bytes * kTile.tile_strips()));
    ops::warp_sync();
    if (lane < kTile.tile_strips()) {
      const i64 strip = min_of(first_strip + lane, kMatrix.strips() - 1);
      ops::copy_bulk(shared.weights(stage, lane), expert + kMatrix.unit_offset_bytes(0, strip, first), static_cast<u32>(bytes),
                     shared.full(stage));
    }
  }

  /// Tokens of one stage, gathered row by row; vectors past K and rows past the block become zero.
  static W4MOE_INLINE void copy_tokens(const WgmmaShared<V>& shared, i32 stage, const u8* base, i64 row_bytes, const BlockRow* table,
                                       i32 width, i64 step) {
    const i32 thread = ops::thread_index() % kWgmmaGroupThreads;
    const i32 vector = thread % 8;
    for (i32 row = thread / 8; row < width; row += kRowsPerPass) {
      const BlockRow r = table[row];
      const u8* source = base + r.source_row * row_bytes;
#pragma unroll
      for (i32 unit = 0; unit < kTile.stage_units; ++unit) {
        const i64 first = (step * kTile.stage_units + unit) * kUnitK + vector * kRowVectorElems;
        const i64 valid = r.pair < 0 ? 0 : kTail.valid_vector_bytes(first, 2);
        u8* place = shared.tokens(stage, unit) + row * 128 + ((vector ^ row) & 7) * 16;
        ops::copy16_async(ops::shared_address(place), valid > 0 ? source + first * 2 : base, static_cast<i32>(valid));
      }
    }
    ops::copy_commit();
  }

  /// Announces the tokens of a stage whose copies this thread has waited for.
  static W4MOE_INLINE void announce(const WgmmaShared<V>& shared, i32 stage) {
    ops::fence_async_shared();
    ops::warp_sync();
    if (ops::lane_index() == 0) ops::async_barrier_arrive(shared.full(stage));
  }

  static W4MOE_INLINE void run(const Args& a, const WgmmaShared<V>& shared, const u8* base, i64 row_bytes, const u8* weights) {
    const i32 thread = ops::thread_index() % kWgmmaGroupThreads;
    RingCursor<kTile.stages> stage;
    RingCursor<kTile.stages> behind;   // the oldest stage not yet announced
    RingCursor<kWgmmaTables> table;
    i32 held = 0;
    const i64 items = a.counts->blocks * V.row_tiles();
    for (i64 item = ops::block_index_x(); item < items; item += ops::grid_size_x()) {
      const RouteBlock block = a.blocks[item / V.row_tiles()];
      const i64 first_strip = item % V.row_tiles() * kTile.tile_strips();
      const u8* expert = weights + block.expert * kMatrix.expert_stride_bytes();
      const i32 width = tile_width<V>(block.rows);

      ops::async_barrier_wait(shared.table_empty(table.index), table.parity ^ 1);
      BlockRow* rows = shared.table(table.index);
      if (thread < width) rows[thread] = Rows::row(a, block, thread);
      ops::barrier_of(1, kWgmmaGroupThreads);

      for (i64 step = 0; step < kSteps; ++step) {
        ops::async_barrier_wait(shared.empty(stage.index), stage.parity ^ 1);
        if (thread < kLanes) copy_weights(shared, stage.index, expert, first_strip, step);
        copy_tokens(shared, stage.index, base, row_bytes, rows, width, step);
        stage.next();
        if (held == kLag) {
          ops::copy_wait<kLag>();
          announce(shared, behind.index);
          behind.next();
        } else {
          ++held;
        }
      }
      table.next();
    }
    ops::copy_wait<0>();
    for (; held > 0; --held) {
      announce(shared, behind.index);
      behind.next();
    }
  }
};

}  // namespace w4moe
