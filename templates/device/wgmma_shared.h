// Shared memory of the wgmma family, and the work items that its persistent CTAs take in turn.
#pragma once

#include "contract/variant.h"
#include "device/block_rows.h"
#include "device/ops.h"

namespace w4moe {

/// Position in a ring of `Size` slots: index, and the parity that waits use.
template <i32 Size>
struct RingCursor {
  i32 index = 0;
  u32 parity = 0;

  W4MOE_INLINE RingCursor after() const {
    RingCursor next{index + 1, parity};
    if (next.index == Size) next = RingCursor{0, parity ^ 1};
    return next;
  }
};

template <Variant V>
struct WgmmaShared {
  static constexpr WgmmaTile kTile = V.wgmma;
  static constexpr i64 kUnitBytes = UnitLayout{V.format}.unit_bytes();

  u8* base;

  W4MOE_INLINE u8* tokens(i64 stage) const { return base + kTile.tokens_offset_bytes(stage); }
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

  /// One thread; a CTA barrier must follow. A stage is full once its weights have landed and so has every producer thread's
  /// share of its tokens.
  W4MOE_INLINE void init_barriers() const {
    for (i64 s = 0; s < kTile.stages; ++s) {
      ops::async_barrier_init(full(s), 1 + kWgmmaGroupThreads);
      ops::async_barrier_init(empty(s), kTile.consumer_warps());
    }
    for (i64 t = 0; t < kWgmmaTables; ++t) ops::async_barrier_init(table_empty(t), kTile.consumer_warps());
    ops::async_barrier_init_fence();
  }
};

/// One tile: a block of routes and 64 * 2 * blocks_per_group packed rows.
struct WgmmaItem {
  RouteBlock block;
  i32 row_tile;
};

/// Calls `work(item)` for each of this CTA's items, in the same order in every warpgroup.
template <Variant V, class Args, class Work>
W4MOE_INLINE void for_each_item(const Args& a, const Work& work) {
  constexpr u32 kRowTiles = static_cast<u32>(V.row_tiles());
  const u32 items = static_cast<u32>(gemm_items(V, a.counts->blocks));
  for (u32 item = static_cast<u32>(ops::block_index_x()); item < items; item += static_cast<u32>(ops::grid_size_x())) {
    work(WgmmaItem{a.blocks[item / kRowTiles], static_cast<i32>(item % kRowTiles)});
  }
}

}  // namespace w4moe
