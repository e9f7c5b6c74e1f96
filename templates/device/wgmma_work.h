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
  W4MOE_INLINE u8* weights(i64 stage, i64 group) const {
    return base + kTile.weights_offset_bytes(stage, kUnitBytes) + group * kTile.group_stage_bytes(kUnitBytes);
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
  static constexpr i32 kSteps = static_cast<i32>(ceil_div(kMatrix.k_units(), kTile.stage_units));
  static constexpr u32 kRowTiles = static_cast<u32>(V.row_tiles());
  static constexpr i32 kRowsPerPass = kWgmmaGroupThreads / 8;
  static_assert(kTile.tile_strips() % kGroupStrips == 0, "a tile is made of whole groups of strips");
  static constexpr i32 kGroups = static_cast<i32>(kTile.tile_groups());
  static constexpr i32 kMatrixGroups = static_cast<i32>(ceil_div(kMatrix.strips(), kGroupStrips));
  static constexpr i32 kLag = kTile.token_lag(kSteps);
  static_assert(kLag >= 1, "a ring of three stages at least");

  /// Weights of one stage: one contiguous copy per group of strips. Groups past the matrix are not copied: what their place holds
  /// meets no stored sum.
  static W4MOE_INLINE void copy_weights(const WgmmaShared<V>& shared, i32 stage, const u8* expert, i32 first_group, i32 step) {
    constexpr i32 kUnits = static_cast<i32>(kMatrix.k_units());
    const i32 first = step * kTile.stage_units;
    const i32 units = kUnits - first < kTile.stage_units ? kUnits - first : kTile.stage_units;
    u32 total = 0;
#pragma unroll
    for (i32 g = 0; g < kGroups; ++g) total += group_bytes(first_group + g, units);
    ops::async_barrier_expect(shared.full(stage), total);
#pragma unroll
    for (i32 g = 0; g < kGroups; ++g) {
      const u32 bytes = group_bytes(first_group + g, units);
      if (bytes == 0) break;
      ops::copy_bulk(shared.weights(stage, g), expert + kMatrix.unit_offset_bytes(0, (first_group + g) * kGroupStrips, first), bytes,
                     shared.full(stage));
    }
  }

  static W4MOE_INLINE u32 group_bytes(i32 group, i32 units) {
    if (group >= kMatrixGroups) return 0;
    return static_cast<u32>(units * static_cast<i32>(kMatrix.unit_stride_bytes(group * kGroupStrips)));
  }

  /// Tokens of one stage, gathered row by row; vectors past K and rows past the block become zero.
  static W4MOE_INLINE void copy_tokens(const WgmmaShared<V>& shared, i32 stage, const u8* base, i64 row_bytes, const BlockRow* table,
                                       i32 width, i32 step) {
    const i32 thread = ops::thread_index() % kWgmmaGroupThreads;
    const i32 vector = thread % 8;
    for (i32 row = thread / 8; row < width; row += kRowsPerPass) {
      const BlockRow r = table[row];
      const u8* source = base + r.source_row * row_bytes;
#pragma unroll
      for (i32 unit = 0; unit < kTile.stage_units; ++unit) {
        const i32 first = (step * kTile.stage_units + unit) * static_cast<i32>(kUnitK) + vector * static_cast<i32>(kRowVectorElems);
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
    const u32 items = static_cast<u32>(a.counts->blocks) * kRowTiles;
    for (u32 item = static_cast<u32>(ops::block_index_x()); item < items; item += static_cast<u32>(ops::grid_size_x())) {
      const RouteBlock block = a.blocks[item / kRowTiles];
      const i32 width = tile_width<V>(block.rows);
      const i32 first_group = static_cast<i32>(item % kRowTiles) * kGroups;
      const u8* expert = weights + block.expert * kMatrix.expert_stride_bytes();

      ops::async_barrier_wait(shared.table_empty(table.index), table.parity ^ 1);
      BlockRow* rows = shared.table(table.index);
      if (thread < width) rows[thread] = Rows::row(a, block, thread);
      ops::barrier_of(1, kWgmmaGroupThreads);

      for (i32 step = 0; step < kSteps; ++step) {
        ops::async_barrier_wait(shared.empty(stage.index), stage.parity ^ 1);
        if (thread == 0) copy_weights(shared, stage.index, expert, first_group, step);
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
