// FC1: a block's tokens times W13 of its expert, then bias and activation, into h in expert-sorted order.
// One CTA computes tile_rows() packed rows for one block; its gate and up rows lie side by side, so the activation needs no other CTA.
#include "contract/args.h"
#include "device/activation.h"
#include "device/epilogue.h"
#include "device/facts.h"

namespace w4moe {

template <Variant V>
struct Fc1 {
  using Stage = TokenStage<V, false>;
  static constexpr GemmTile kTile = V.tile;
  static constexpr MatrixLayout kMatrix = V.matrix();
  static constexpr bool kGated = is_gated(V.activation);
  static constexpr i64 kTileFeatures = kTile.tile_strips() * fc1_strip_features(kGated);
  static constexpr ScratchLayout kScratch{Shape{V.hidden, V.intermediate, 1, 1, 1}, V.dtype, 0};
  static constexpr i32 kItem = rows_per_item<V>(kTileFeatures);

  static W4MOE_INLINE BlockRow row_of(const Fc1Args& a, i32 pair) {
    BlockRow row;
    row.pair = pair;
    row.source_row = pair / a.topk;
    if (a.weight_on_input != 0) {
      row.factor = router_weight(a.router_weights, a.router_dtype, a.router_row_stride_elems, row.source_row, pair % a.topk);
    }
    return row;
  }

  /// Fills the block's row table: token row, route, and the router weight where it goes on the input.
  static W4MOE_INLINE void fill_rows(const Fc1Args& a, const FoundBlock& found, BlockRow* table) {
    const i32 r = ops::thread_index();
    if (found.row >= 0) table[found.row] = row_of(a, r);
    if (r < kTile.block_rows) {
      if (r >= found.block.rows) {
        table[r] = BlockRow{};
      } else if (a.direct.ids == nullptr) {
        table[r] = row_of(a, a.sorted_pairs[found.block.first_slot + r]);
      }
    }
    ops::barrier();
  }

  /// Finishes `kItem` adjacent features of one row of the block.
  static W4MOE_INLINE void finish(const Fc1Args& a, const RouteBlock& block, const BlockRow* table, i64 tile, i64 item) {
    const i64 row = item / (kTileFeatures / kItem);
    const i64 in_tile = item % (kTileFeatures / kItem) * kItem;
    const i64 feature = tile * kTileFeatures + in_tile;
    if (row >= block.rows || feature >= V.intermediate) return;

    const u8* shared = ops::shared_memory();
    const ExpertGlobals globals = a.globals[block.expert];
    const float* bias = a.bias == nullptr ? nullptr : a.bias + block.expert * kMatrix.padded_rows();
    const float factor = table[row].factor;
    float out[kItem];
    if constexpr (kGated) {
      const i64 packed = in_tile / kRowPairs * kStripRows + in_tile % kRowPairs;
      float gate[kItem];
      float up[kItem];
      sum_partials<V, kItem>(shared, row, packed, gate);
      sum_partials<V, kItem>(shared, row, packed + kRowPairs, up);
#pragma unroll
      for (i32 i = 0; i < kItem; ++i) {
        float g = gate[i] * globals.gate * factor;
        float u = up[i] * globals.up * factor;
        if (bias != nullptr) {
          const i64 at = tile * kTile.tile_rows() + packed + i;
          g += bias[at];
          u += bias[at + kRowPairs];
        }
        out[i] = activate<V.activation>(g, u, a.activation);
      }
    } else {
      float gate[kItem];
      sum_partials<V, kItem>(shared, row, in_tile, gate);
#pragma unroll
      for (i32 i = 0; i < kItem; ++i) {
        float g = gate[i] * globals.gate * factor;
        if (bias != nullptr) g += bias[feature + i];
        out[i] = activate<V.activation>(g, 0.0f, a.activation);
      }
    }

    const i64 slot = a.direct.ids != nullptr ? table[row].pair : block.first_slot + row;
    store_row_values<kScratch.h_dtype(), kItem>(static_cast<u8*>(a.h) + slot * kScratch.h_row_bytes(), feature, out);
    if constexpr (V.dtype == DType::f16) {
      // FC2 scales each row by a power of two from its largest |h|: a maximum does not depend on the order of arrival.
      u32 largest = 0;
#pragma unroll
      for (i32 i = 0; i < kItem; ++i) {
        const u32 bits = ops::bits_of(out[i]) & 0x7fffffffu;
        largest = bits > largest ? bits : largest;
      }
      ops::atomic_max(&a.h_amax[slot], largest);
    }
  }

  static W4MOE_INLINE void run(const Fc1Args& a) {
    ops::grid_wait();
    ops::grid_launch_next();
    const i64 block_index = ops::block_index_x() / V.row_tiles();
    const i64 tile = ops::block_index_x() % V.row_tiles();
    u8* shared = ops::shared_memory();
    BlockRow* table = reinterpret_cast<BlockRow*>(shared + kTile.row_table_offset_bytes());
    const FoundBlock found = block_of<V>(a, block_index, shared);
    const RouteBlock& block = found.block;
    if (block.rows == 0) return;

    WeightStream<V> weights;  // needs the expert only: under way while the rows are looked up
    weights.start(a.weights + block.expert * kMatrix.expert_stride_bytes(), tile * kTile.tile_strips());
    fill_rows(a, found, table);

    Stage stage;
    stage.init(shared, a.x, a.x_row_stride_elems * dtype_bytes(V.dtype), table, nullptr);
    Accumulators<V> acc;
    gemm_mainloop<V>(acc, stage, weights);
    store_partials<V>(acc, shared);
    ops::barrier();

    constexpr i64 kItems = kTileFeatures / kItem * kTile.block_rows;
    for (i64 item = ops::thread_index(); item < kItems; item += kTile.threads()) finish(a, block, table, tile, item);
  }
};

}  // namespace w4moe

W4MOE_KERNEL(w4moe::kVariant.threads(), w4moe::kVariant.min_ctas_per_sm()) w4moe_fc1(W4MOE_ARGS(w4moe::Fc1Args) args) {
  w4moe::Fc1<w4moe::kVariant>::run(args);
}
W4MOE_KERNEL_FACTS(w4moe::Fc1Args)
