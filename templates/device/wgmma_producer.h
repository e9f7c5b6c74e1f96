// The producer warpgroup of the wgmma family: it owns every load of a tile, and never waits for one.
#pragma once

#include "device/wgmma_shared.h"

namespace w4moe {

/// `Rows` fills a block's row table: Rows::row(args, block, r) -> BlockRow.
template <Variant V, class Args, class Rows>
struct WgmmaProducer {
  static constexpr WgmmaTile kTile = V.wgmma;
  static constexpr MatrixLayout kMatrix = V.matrix();
  static constexpr TailRule kTail{kMatrix.k, 0};
  static constexpr i32 kUnits = static_cast<i32>(kMatrix.k_units());
  static constexpr i32 kStageUnits = kTile.stage_units;
  static constexpr i32 kSteps = static_cast<i32>(ceil_div(kUnits, kStageUnits));
  static constexpr bool kTailStep = kMatrix.k % kTile.stage_k() != 0;   // the last step has vectors past K
  static constexpr i32 kGroups = static_cast<i32>(kTile.tile_groups());
  static constexpr i32 kMatrixGroups = static_cast<i32>(ceil_div(kMatrix.strips(), kGroupStrips));
  static_assert(kTile.tile_strips() % kGroupStrips == 0, "a tile is made of whole groups of strips");

  static constexpr i32 kRowVectors = static_cast<i32>(kSwizzleRowBytes / 16);
  static constexpr i32 kRowsPerPass = kWgmmaGroupThreads / kRowVectors;
  static constexpr i32 kPasses = static_cast<i32>(ceil_div(kTile.max_width(), kRowsPerPass));

  const Args& a;
  const WgmmaShared<V>& shared;
  const u8* base;      ///< this thread's vector of token row 0
  i64 row_bytes;
  u32 rows[kPasses];   ///< token rows that this thread copies, as distances from base in vectors of 16 bytes
  u32 place;           ///< of its vector, in a unit of a stage

  W4MOE_INLINE static i32 thread() { return ops::thread_index() % kWgmmaGroupThreads; }

  W4MOE_INLINE static u32 group_bytes(i32 group, i32 units) {
    if (group >= kMatrixGroups) return 0;
    return static_cast<u32>(units * static_cast<i32>(kMatrix.unit_stride_bytes(group * kGroupStrips)));
  }

  /// Weights of one stage: one contiguous copy per group of strips. Groups past the matrix are not copied: what their place holds
  /// meets no stored sum.
  W4MOE_INLINE void copy_weights(i32 stage, const u8* expert, i32 first_group, i32 step) const {
    const i32 first = step * kStageUnits;
    const i32 units = kUnits - first < kStageUnits ? kUnits - first : kStageUnits;
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

  /// Fills the block's row table and notes which rows this thread copies. Rows past the block repeat its last one: their sums are
  /// never stored, and no sum of another row depends on them.
  W4MOE_INLINE void take_rows(const RouteBlock& block, i32 width, BlockRow* table) {
    for (i32 r = thread(); r < width; r += kWgmmaGroupThreads) table[r] = Rows::row(a, block, min_of(r, block.rows - 1));
    ops::barrier_of<1, kWgmmaGroupThreads>();
#pragma unroll
    for (i32 p = 0; p < kPasses; ++p) {
      const i32 row = p * kRowsPerPass + thread() / kRowVectors;
      if (row < width) rows[p] = static_cast<u32>(table[row].source_row * row_bytes / 16);
    }
  }

  /// This thread's share of the tokens of one stage. `Tail`: vectors past K become zero.
  template <bool Tail>
  W4MOE_INLINE void copy_tokens(i32 stage, i32 width, i32 step) const {
    const u8* from = base + static_cast<i64>(step) * kStageUnits * kSwizzleRowBytes;
    const ops::SharedAddress to = ops::shared_address(shared.tokens(stage)) + place;
#pragma unroll
    for (i32 p = 0; p < kPasses; ++p) {
      if (p * kRowsPerPass >= width) break;
      // Widths are multiples of 8, a pass takes 16 rows: half of the last pass may be past the width.
      if (p * kRowsPerPass + thread() / kRowVectors >= width) break;
      const u8* row = from + static_cast<u64>(rows[p]) * 16;
#pragma unroll
      for (i32 unit = 0; unit < kStageUnits; ++unit) {
        i32 valid = 16;
        if constexpr (Tail) {
          const i64 first = (step * kStageUnits + unit) * kUnitK + thread() % kRowVectors * kRowVectorElems;
          valid = static_cast<i32>(kTail.valid_vector_bytes(first, 2));
        }
        const u32 offset = static_cast<u32>(unit * kTile.token_unit_bytes() + p * kRowsPerPass * kSwizzleRowBytes);
        ops::copy16_async(to + offset, valid > 0 ? row + unit * kSwizzleRowBytes : base, valid);
      }
    }
    ops::copy_arrive(shared.full(stage));
  }

  W4MOE_INLINE void run(const u8* weights) {
    RingCursor<kTile.stages> stage;
    RingCursor<kWgmmaTables> table;
    place = static_cast<u32>(kTile.token_vector_offset_bytes(thread() / kRowVectors, thread() % kRowVectors));
    for_each_item<V>(a, [&](const WgmmaItem& item) {
      const i32 width = kTile.width_for(item.block.rows);
      const u8* expert = weights + item.block.expert * kMatrix.expert_stride_bytes();
      ops::async_barrier_wait(shared.table_empty(table.index), table.parity ^ 1);
      take_rows(item.block, width, shared.table(table.index));
      table = table.after();
      for (i32 step = 0; step < kSteps; ++step) {
        ops::async_barrier_wait(shared.empty(stage.index), stage.parity ^ 1);
        if (thread() == 0) copy_weights(stage.index, expert, item.row_tile * kGroups, step);
        if (kTailStep && step == kSteps - 1) {
          copy_tokens<true>(stage.index, width, step);
        } else {
          copy_tokens<false>(stage.index, width, step);
        }
        stage = stage.after();
      }
    });
    // A CTA's shared memory must outlive the copies into it.
    ops::copy_commit();
    ops::copy_wait<0>();
  }
};

}  // namespace w4moe
