// The body that FC1 and FC2 of the wgmma family share: roles by warpgroup, tiles by width, outputs by way of shared memory.
#pragma once

#include "device/epilogue.h"
#include "device/wgmma_consumer.h"
#include "device/wgmma_producer.h"

namespace w4moe {

/// Registers after setmaxnreg: consumers hold accumulators and operands, the producer addresses. 2 x 232 + 40 = 3 x 168.
inline constexpr i32 kWgmmaConsumerRegisters = 232;
inline constexpr i32 kWgmmaProducerRegisters = 40;

/// Outputs of one warp, 16 tokens at a time: stmatrix turns feature-major fragments into token-major rows, which leave as whole
/// 16-byte vectors. `values(t, r)` gives the packed outputs of tokens 8 t .. 8 t + 7 as up to four 8x8 matrices; `row_of(token)`
/// the place of the warp's first output of a token. `valid_bytes` of a token's outputs exist.
template <Variant V, i32 Width, i32 RowBytes, class Values, class RowOf>
W4MOE_INLINE void store_outputs(u8* staging, i32 tokens, i32 valid_bytes, const Values& values, const RowOf& row_of) {
  constexpr i32 kRowBytes = static_cast<i32>(V.wgmma.staging_row_bytes());
  constexpr i32 kVectors = RowBytes / 16;
  constexpr i32 kGroups = kWgmmaStagedTokens / 8;
  const i32 lane = ops::lane_index();
  const ops::SharedAddress matrix_row = ops::shared_address(staging) + static_cast<u32>(lane % 8 * kRowBytes + lane / 8 * 16);
#pragma unroll
  for (i32 t = 0; t < Width / 8; ++t) {
    u32 r[4] = {};
    values(t, r);
    ops::store_matrix_x4_transposed(matrix_row + static_cast<u32>(t % kGroups * 8 * kRowBytes), r[0], r[1], r[2], r[3]);
    if (t % kGroups == kGroups - 1 || t == Width / 8 - 1) {
      ops::warp_sync();
#pragma unroll
      for (i32 i = 0; i < kWgmmaStagedTokens * kVectors; i += static_cast<i32>(kLanes)) {
        const i32 row = (i + lane) / kVectors;
        const i32 byte = (i + lane) % kVectors * 16;
        const i32 token = t / kGroups * kWgmmaStagedTokens + row;
        if (token < tokens && byte < valid_bytes) {
          *reinterpret_cast<ops::U32x4*>(row_of(token) + byte) = ops::load_shared_x4(staging + row * kRowBytes + byte);
        }
      }
      ops::warp_sync();
    }
  }
}

/// A lane's biases of its warp's blocks: rows g and g + 8 of each. `bias` is an expert's, or null.
template <Variant V>
struct LaneBiases {
  static constexpr i32 kBlocks = V.wgmma.blocks_per_group;
  float v[kBlocks][2];

  W4MOE_INLINE LaneBiases(const float* bias, i64 first_strip) {
#pragma unroll
    for (i32 b = 0; b < kBlocks; ++b) {
      const bool present = bias != nullptr && first_strip + b < V.matrix().strips();
      const float* from = bias + (first_strip + b) * kStripRows + ops::lane_index() / 4;
      v[b][0] = present ? from[0] : 0.0f;
      v[b][1] = present ? from[kRowPairs] : 0.0f;
    }
  }
};

/// Runs an item with the compile-time width that fits it.
template <Variant V, class Kernel, i32 Index, class Args>
W4MOE_INLINE void run_item(const Args& a, const WgmmaShared<V>& shared, RingCursor<V.wgmma.stages>& stage, const WgmmaItem& item,
                           const BlockRow* table) {
  constexpr i32 kWidth = V.wgmma.widths[Index];
  if constexpr (Index + 1 < V.wgmma.width_count()) {
    if (item.block.rows > kWidth) {
      run_item<V, Kernel, Index + 1>(a, shared, stage, item, table);
      return;
    }
  }
  WgmmaConsumer<V, kWidth> consumer(shared, stage, item.row_tile);
  consumer.run();
  Kernel::template finish<kWidth>(a, shared, consumer.acc, item, table);
}

/// `base` and `row_bytes` describe the token rows that Kernel::Rows refers to.
template <Variant V, class Kernel, class Args>
W4MOE_INLINE void run_wgmma_kernel(const Args& a, const void* base, i64 row_bytes) {
  const WgmmaShared<V> shared{ops::shared_memory()};
  ops::grid_launch_next();
  if (ops::thread_index() == 0) shared.init_barriers();
  ops::barrier();
  ops::grid_wait();

  if (ops::warp_index() >= V.wgmma.consumer_warps()) {
    ops::registers_decrease<kWgmmaProducerRegisters>();
    const u8* vector = static_cast<const u8*>(base) + ops::thread_index() % (kSwizzleRowBytes / 16) * 16;
    WgmmaProducer<V, Args, typename Kernel::Rows> producer{a, shared, vector, row_bytes, {}, 0};
    producer.run(a.weights);
  } else {
    ops::registers_increase<kWgmmaConsumerRegisters>();
    RingCursor<V.wgmma.stages> stage;
    RingCursor<kWgmmaTables> table;
    for_each_item<V>(a, [&](const WgmmaItem& item) {
      run_item<V, Kernel, 0>(a, shared, stage, item, shared.table(table.index));
      ops::warp_sync();
      if (ops::lane_index() == 0) ops::async_barrier_arrive(shared.table_empty(table.index));
      table = table.after();
    });
  }
}

}  // namespace w4moe
