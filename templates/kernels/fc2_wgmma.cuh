// FC2 of the register-A family: a block's h times W2 of its expert, bias and router weight in registers, one row per route.
#include "contract/args.h"
#include "device/facts.h"
#include "device/wgmma_kernel.h"

namespace w4moe {

template <Variant V>
struct Fc2Wgmma {
  static constexpr WgmmaTile kTile = V.wgmma;
  static constexpr MatrixLayout kMatrix = V.matrix();
  static constexpr i32 kBlocks = kTile.blocks_per_group;
  static constexpr i32 kWarpRows = kBlocks * static_cast<i32>(kStripRows);
  static constexpr ScratchLayout kScratch{Shape{V.hidden, V.intermediate, 1, 1, 1}, V.dtype, 0};
  static_assert(V.dtype == DType::bf16, "fp16 keeps h in fp32: served by the portable family");

  struct Rows {
    static W4MOE_INLINE BlockRow row(const Fc2Args& a, const RouteBlock& block, i32 r) {
      BlockRow row;
      if (r < block.rows) {
        row.source_row = block.first_slot + r;
        row.pair = a.sorted_pairs[row.source_row];
        if (a.weight_on_input == 0) {
          row.factor = router_weight(a.router_weights, a.router_dtype, a.router_row_stride_elems, row.pair / a.topk, row.pair % a.topk);
        }
      }
      return row;
    }
  };

  template <i32 Width>
  static W4MOE_INLINE void finish(const Fc2Args& a, const WgmmaShared<V>& shared, const WgmmaConsumer<V, Width>& sums,
                                  const RouteBlock& block, const BlockRow* table, i64 row_tile) {
    const i32 lane = ops::lane_index();
    const i32 warp = ops::warp_index();
    const float global = a.globals[block.expert].down;
    const i64 first_strip = row_tile * kTile.tile_strips() + warp * kBlocks;
    const i64 column = first_strip * kStripRows;
    float bias[kBlocks][2] = {};
    if (a.bias != nullptr) {
#pragma unroll
      for (i32 b = 0; b < kBlocks; ++b) {
        if (first_strip + b < kMatrix.strips()) {
          const float* from = a.bias + block.expert * kMatrix.padded_rows() + (first_strip + b) * kStripRows + lane / 4;
          bias[b][0] = from[0];
          bias[b][1] = from[kRowPairs];
        }
      }
    }
    u8* staging = shared.staging(warp);
    const i32 valid = static_cast<i32>(min_of(max_of(V.hidden - column, 0), kWarpRows)) * 2;
#pragma unroll
    for (i32 t = 0; t < Width / 8; ++t) {
      u32 r[4] = {};
      const BlockRow* rows = table + t * 8 + 2 * (lane % 4);
      const float factor0 = rows[0].factor;
      const float factor1 = rows[1].factor;
#pragma unroll
      for (i32 b = 0; b < kBlocks; ++b) {
        const float(&s)[Width / 2] = sums.acc[b];
#pragma unroll
        for (i32 half = 0; half < 2; ++half) {
          r[2 * b + half] = ops::pack2<V.dtype>((s[4 * t + 2 * half] * global + bias[b][half]) * factor0,
                                                (s[4 * t + 2 * half + 1] * global + bias[b][half]) * factor1);
        }
      }
      ops::store_matrix_x4_transposed(staged_matrix_row<V>(staging, t % 4), r[0], r[1], r[2], r[3]);
      if (t % 4 == 3 || t == Width / 8 - 1) {
        const i32 first_token = t / 4 * 32;
        ops::warp_sync();
        flush_staged<V, kWarpRows * 2>(staging, (t % 4 + 1) * 8, valid, [&](i32 row) -> u8* {
          const i32 r_in_block = first_token + row;
          if (r_in_block >= block.rows) return nullptr;
          return static_cast<u8*>(a.route_rows) + table[r_in_block].pair * kScratch.route_row_bytes() + column * 2;
        });
        ops::warp_sync();
      }
    }
  }

  template <i32 Width>
  static W4MOE_INLINE void run_tile(const Fc2Args& a, const WgmmaShared<V>& shared, RingCursor<kTile.stages>& stage,
                                    const RouteBlock& block, const BlockRow* table, i64 row_tile) {
    WgmmaConsumer<V, Width> sums;
    sums.run(shared, stage, row_tile);
    finish<Width>(a, shared, sums, block, table, row_tile);
  }

  static W4MOE_INLINE void run(const Fc2Args& a) { run_wgmma_kernel<V, Fc2Wgmma<V>>(a, a.h, kScratch.h_row_bytes()); }
};

}  // namespace w4moe

W4MOE_KERNEL(w4moe::kVariant.threads(), 1) w4moe_fc2(W4MOE_ARGS(w4moe::Fc2Args) args) { w4moe::Fc2Wgmma<w4moe::kVariant>::run(args); }
W4MOE_KERNEL_FACTS(w4moe::Fc2Args)
