// FC1 of the register-A family: a block's tokens times W13 of its expert, bias and activation in registers, h in expert-sorted order.
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
  static_assert(V.dtype == DType::bf16, "fp16 keeps h in fp32: served by the portable family");

  struct Rows {
    static W4MOE_INLINE BlockRow row(const Fc1Args& a, const RouteBlock& block, i32 r) {
      BlockRow row;
      if (r < block.rows) {
        row.pair = a.sorted_pairs[block.first_slot + r];
        row.source_row = row.pair / a.topk;
        if (a.weight_on_input != 0) {
          row.factor = router_weight(a.router_weights, a.router_dtype, a.router_row_stride_elems, row.source_row, row.pair % a.topk);
        }
      }
      return row;
    }
  };

  /// Two tokens (values i and i + 1 of a fragment row) of a feature, activated and packed.
  static W4MOE_INLINE u32 feature_pair(const Fc1Args& a, const ExpertGlobals& globals, const float (&gate)[2], const float (&up)[2],
                                       float gate_bias, float up_bias, const BlockRow* rows) {
    float out[2];
#pragma unroll
    for (i32 i = 0; i < 2; ++i) {
      const float factor = a.weight_on_input != 0 ? rows[i].factor : 1.0f;
      const float g = gate[i] * globals.gate * factor + gate_bias;
      const float u = up[i] * globals.up * factor + up_bias;
      out[i] = activate<V.activation>(g, u, a.activation);
    }
    return ops::pack2<V.dtype>(out[0], out[1]);
  }

  template <i32 Width>
  static W4MOE_INLINE void finish(const Fc1Args& a, const WgmmaShared<V>& shared, const WgmmaConsumer<V, Width>& sums,
                                  const RouteBlock& block, const BlockRow* table, i64 row_tile) {
    const i32 lane = ops::lane_index();
    const i32 warp = ops::warp_index();
    const ExpertGlobals globals = a.globals[block.expert];
    const i64 first_strip = row_tile * kTile.tile_strips() + warp * kBlocks;
    const i64 feature = first_strip * kStripFeatures;
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
    const i32 valid = static_cast<i32>(min_of(max_of(V.intermediate - feature, 0), kWarpFeatures)) * 2;
#pragma unroll
    for (i32 t = 0; t < Width / 8; ++t) {
      u32 r[4] = {};
      const BlockRow* rows = table + t * 8 + 2 * (lane % 4);
#pragma unroll
      for (i32 b = 0; b < kBlocks; ++b) {
        const float(&s)[Width / 2] = sums.acc[b];
        const float low[2] = {s[4 * t], s[4 * t + 1]};
        const float high[2] = {s[4 * t + 2], s[4 * t + 3]};
        if constexpr (kGated) {
          r[b] = feature_pair(a, globals, low, high, bias[b][0], bias[b][1], rows);
        } else {
          r[2 * b] = feature_pair(a, globals, low, low, bias[b][0], 0.0f, rows);
          r[2 * b + 1] = feature_pair(a, globals, high, high, bias[b][1], 0.0f, rows);
        }
      }
      ops::store_matrix_x4_transposed(staged_matrix_row<V>(staging, t % 4), r[0], r[1], r[2], r[3]);
      if (t % 4 == 3 || t == Width / 8 - 1) {
        const i32 first_token = t / 4 * 32;
        ops::warp_sync();
        flush_staged<V, kWarpFeatures * 2>(staging, (t % 4 + 1) * 8, valid, [&](i32 row) -> u8* {
          const i32 r_in_block = first_token + row;
          if (r_in_block >= block.rows) return nullptr;
          return static_cast<u8*>(a.h) + (block.first_slot + r_in_block) * kScratch.h_row_bytes() + feature * 2;
        });
        ops::warp_sync();
      }
    }
  }

  template <i32 Width>
  static W4MOE_INLINE void run_tile(const Fc1Args& a, const WgmmaShared<V>& shared, RingCursor<kTile.stages>& stage,
                                    const RouteBlock& block, const BlockRow* table, i64 row_tile) {
    WgmmaConsumer<V, Width> sums;
    sums.run(shared, stage, row_tile);
    finish<Width>(a, shared, sums, block, table, row_tile);
  }

  static W4MOE_INLINE void run(const Fc1Args& a) { run_wgmma_kernel<V, Fc1Wgmma<V>>(a, a.x, a.x_row_stride_elems * dtype_bytes(V.dtype)); }
};

}  // namespace w4moe

W4MOE_KERNEL(w4moe::kVariant.threads(), 1) w4moe_fc1(W4MOE_ARGS(w4moe::Fc1Args) args) { w4moe::Fc1Wgmma<w4moe::kVariant>::run(args); }
W4MOE_KERNEL_FACTS(w4moe::Fc1Args)
