// FC2 of the wgmma family: a block's h times W2 of its expert, bias and router weight in registers, one row per route.
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
  static constexpr TailRule kTail{0, V.hidden};
  static_assert(wgmma_serves(V.format, V.dtype), "the portable family serves this format");

  struct Rows {
    static W4MOE_INLINE BlockRow row(const Fc2Args& a, const RouteBlock& block, i64 r) {
      BlockRow row;
      row.source_row = block.first_slot + r;
      row.pair = a.sorted_pairs[row.source_row];
      if (a.weight_on_input == 0) {
        row.factor = router_weight(a.router_weights, a.router_dtype, a.router_row_stride_elems, row.pair / a.topk, row.pair % a.topk);
      }
      return row;
    }
  };

  template <i32 Width>
  static W4MOE_INLINE void finish(const Fc2Args& a, const WgmmaShared<V>& shared, const float (&acc)[kBlocks][Width / 2],
                                  const WgmmaItem& item, const BlockRow* table) {
    const i32 lane = ops::lane_index();
    const float global = a.globals[item.block.expert].down;
    const i64 first_strip = item.row_tile * kTile.tile_strips() + ops::warp_index() * kBlocks;
    const i64 column = first_strip * kStripRows;
    const LaneBiases<V> bias(a.bias == nullptr ? nullptr : a.bias + item.block.expert * kMatrix.padded_rows(), first_strip);

    const auto values = [&](i32 t, u32(&r)[4]) {
      const float factor0 = table[t * 8 + 2 * (lane % 4)].factor;
      const float factor1 = table[t * 8 + 2 * (lane % 4) + 1].factor;
#pragma unroll
      for (i32 b = 0; b < kBlocks; ++b) {
#pragma unroll
        for (i32 half = 0; half < 2; ++half) {
          const float* s = acc[b] + 4 * t + 2 * half;
          r[2 * b + half] = ops::pack2<V.dtype>((s[0] * global + bias.v[b][half]) * factor0, (s[1] * global + bias.v[b][half]) * factor1);
        }
      }
    };
    u8* rows = static_cast<u8*>(a.route_rows) + column * 2;
    store_outputs<V, Width, kWarpRows * 2>(shared.staging(ops::warp_index()), item.block.rows,
                                           static_cast<i32>(kTail.valid_rows(column, kWarpRows)) * 2, values,
                                           [&](i32 token) { return rows + table[token].pair * kScratch.route_row_bytes(); });
  }

  static W4MOE_INLINE void run(const Fc2Args& a) { run_wgmma_kernel<V, Fc2Wgmma<V>>(a, a.h, kScratch.h_row_bytes()); }
};

}  // namespace w4moe

W4MOE_KERNEL(w4moe::kVariant.threads(), 1) w4moe_fc2(W4MOE_ARGS(w4moe::Fc2Args) args) { w4moe::Fc2Wgmma<w4moe::kVariant>::run(args); }
W4MOE_KERNEL_FACTS(w4moe::Fc2Args)
