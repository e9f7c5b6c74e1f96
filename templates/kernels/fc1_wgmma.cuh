// FC1 of the wgmma family: a block's tokens times W13 of its expert, bias and activation in registers, h in expert-sorted order.
#include "contract/args.h"
#include "device/activation.h"
#include "device/facts.h"
#include "device/wgmma_kernel.h"

namespace w4moe {

template <Variant V>
struct Fc1Wgmma {
  static constexpr WgmmaTile kTile = V.wgmma;
  static constexpr MatrixLayout kMatrix = V.matrix();
  static constexpr bool kGated = is_gated(V.activation);
  static constexpr i32 kBlocks = kTile.blocks_per_group;
  static constexpr i32 kStripFeatures = static_cast<i32>(fc1_strip_features(kGated));
  static constexpr i32 kWarpFeatures = kBlocks * kStripFeatures;
  static constexpr ScratchLayout kScratch{Shape{V.hidden, V.intermediate, 1, 1, 1}, V.dtype, 0};
  static constexpr TailRule kTail{0, V.intermediate};
  static_assert(wgmma_serves(V.format, V.dtype), "the portable family serves this format");

  struct Rows {
    static W4MOE_INLINE BlockRow row(const Fc1Args& a, const RouteBlock& block, i64 r) {
      BlockRow row;
      row.pair = a.sorted_pairs[block.first_slot + r];
      row.source_row = row.pair / a.topk;
      if (a.weight_on_input != 0) {
        row.factor = router_weight(a.router_weights, a.router_dtype, a.router_row_stride_elems, row.source_row, row.pair % a.topk);
      }
      return row;
    }
  };

  template <i32 Width>
  static W4MOE_INLINE void finish(const Fc1Args& a, const WgmmaShared<V>& shared, const float (&acc)[kBlocks][Width / 2],
                                  const WgmmaItem& item, const BlockRow* table) {
    const i32 lane = ops::lane_index();
    const ExpertGlobals globals = a.globals[item.block.expert];
    const i64 first_strip = item.row_tile * kTile.tile_strips() + ops::warp_index() * kBlocks;
    const i64 feature = first_strip * kStripFeatures;
    const LaneBiases<V> bias(a.bias == nullptr ? nullptr : a.bias + item.block.expert * kMatrix.padded_rows(), first_strip);

    const auto values = [&](i32 t, u32(&r)[4]) {
      float factor[2] = {1.0f, 1.0f};
      if (a.weight_on_input != 0) {
        factor[0] = table[t * 8 + 2 * (lane % 4)].factor;
        factor[1] = table[t * 8 + 2 * (lane % 4) + 1].factor;
      }
#pragma unroll
      for (i32 b = 0; b < kBlocks; ++b) {
        const float* s = acc[b] + 4 * t;  // rows g: tokens 0 and 1 of this lane, then rows g + 8
        float low[2];
        float high[2];
#pragma unroll
        for (i32 i = 0; i < 2; ++i) {
          if constexpr (kGated) {
            low[i] = activate<V.activation>(s[i] * (globals.gate * factor[i]) + bias.v[b][0],
                                            s[2 + i] * (globals.up * factor[i]) + bias.v[b][1], a.activation);
          } else {
            low[i] = activate<V.activation>(s[i] * (globals.gate * factor[i]) + bias.v[b][0], 0.0f, a.activation);
            high[i] = activate<V.activation>(s[2 + i] * (globals.gate * factor[i]) + bias.v[b][1], 0.0f, a.activation);
          }
        }
        if constexpr (kGated) {
          r[b] = ops::pack2<V.dtype>(low[0], low[1]);
        } else {
          r[2 * b] = ops::pack2<V.dtype>(low[0], low[1]);
          r[2 * b + 1] = ops::pack2<V.dtype>(high[0], high[1]);
        }
      }
    };
    u8* h = static_cast<u8*>(a.h) + item.block.first_slot * kScratch.h_row_bytes() + feature * 2;
    store_outputs<V, Width, kWarpFeatures * 2>(shared.staging(ops::warp_index()), item.block.rows,
                                               static_cast<i32>(kTail.valid_rows(feature, kWarpFeatures)) * 2, values,
                                               [&](i32 token) { return h + token * kScratch.h_row_bytes(); });
  }

  static W4MOE_INLINE void run(const Fc1Args& a) { run_wgmma_kernel<V, Fc1Wgmma<V>>(a, a.x, a.x_row_stride_elems * dtype_bytes(V.dtype)); }
};

}  // namespace w4moe

W4MOE_KERNEL(w4moe::kVariant.threads(), 1) w4moe_fc1(W4MOE_ARGS(w4moe::Fc1Args) args) { w4moe::Fc1Wgmma<w4moe::kVariant>::run(args); }
W4MOE_KERNEL_FACTS(w4moe::Fc1Args)
