// The body that FC1 and FC2 of the register-A family share: roles by warpgroup, tiles by width.
#pragma once

#include "device/wgmma_epilogue.h"

namespace w4moe {

/// Registers after setmaxnreg: consumers hold accumulators and operands, the producer only addresses. 2 x 224 + 56 = 3 x 168.
inline constexpr i32 kWgmmaConsumerRegisters = 224;
inline constexpr i32 kWgmmaProducerRegisters = 56;

/// Runs a tile with the compile-time width that fits it.
template <Variant V, class Kernel, i32 Index, class Args>
W4MOE_INLINE void run_tile_of_width(i32 width, const Args& a, const WgmmaShared<V>& shared, RingCursor<V.wgmma.stages>& stage,
                                    const RouteBlock& block, const BlockRow* table, i64 row_tile) {
  constexpr i32 kWidth = V.wgmma.widths[Index];
  if constexpr (Index + 1 < V.wgmma.width_count()) {
    if (width != kWidth) {
      run_tile_of_width<V, Kernel, Index + 1>(width, a, shared, stage, block, table, row_tile);
      return;
    }
  }
  Kernel::template run_tile<kWidth>(a, shared, stage, block, table, row_tile);
}

/// `base` and `row_bytes` describe the token rows that Kernel::Rows refers to.
template <Variant V, class Kernel, class Args>
W4MOE_INLINE void run_wgmma_kernel(const Args& a, const void* base, i64 row_bytes) {
  const WgmmaShared<V> shared{ops::shared_memory()};
  ops::grid_launch_next();
  if (ops::thread_index() == 0) shared.init_barriers();
  ops::barrier();
  ops::grid_wait();

  if (ops::warp_index() >= kWgmmaConsumerGroups * 4) {
    ops::registers_decrease<kWgmmaProducerRegisters>();
    WgmmaProducer<V, Args, typename Kernel::Rows>::run(a, shared, static_cast<const u8*>(base), row_bytes, a.weights);
  } else {
    ops::registers_increase<kWgmmaConsumerRegisters>();
    RingCursor<V.wgmma.stages> stage;
    RingCursor<kWgmmaTables> table;
    constexpr u32 kRowTiles = static_cast<u32>(V.row_tiles());
    const u32 items = static_cast<u32>(a.counts->blocks) * kRowTiles;
    for (u32 item = static_cast<u32>(ops::block_index_x()); item < items; item += static_cast<u32>(ops::grid_size_x())) {
      const RouteBlock block = a.blocks[item / kRowTiles];
      run_tile_of_width<V, Kernel, 0>(tile_width<V>(block.rows), a, shared, stage, block, shared.table(table.index), item % kRowTiles);
      ops::warp_sync();
      if (ops::lane_index() == 0) ops::async_barrier_arrive(shared.table_empty(table.index));
      table.next();
    }
  }
}

}  // namespace w4moe
