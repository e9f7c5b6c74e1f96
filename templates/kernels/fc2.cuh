// FC2: a block's h times W2 of its expert, plus bias, times the router weight, into one row per route.
#include "contract/args.h"
#include "device/epilogue.h"
#include "device/facts.h"

namespace w4moe {

template <Variant V>
struct Fc2 {
  static constexpr bool kScaledRows = V.dtype == DType::f16;
  using Stage = TokenStage<V, kScaledRows>;
  static constexpr GemmTile kTile = V.tile;
  static constexpr MatrixLayout kMatrix = V.matrix();
  static constexpr ScratchLayout kScratch{Shape{V.hidden, V.intermediate, 1, 1, 1}, V.dtype, 0};
  static constexpr i32 kItem = rows_per_item<V>(kTile.tile_rows());

  /// Power of two that brings a row's largest |h| into [2^14, 2^15), and its inverse; 1 for rows of zeros and of non-finite values.
  static W4MOE_INLINE float row_scale(u32 largest_bits, float& inverse) {
    const u32 exponent = largest_bits >> 23;  // the sign is clear
    if (exponent == 255 || largest_bits == 0) {
      inverse = 1.0f;
      return 1.0f;
    }
    // 2^(14 - (e - 127)), kept among the normal numbers: a row of subnormals is lifted by 2^126 at most.
    const i32 shift = static_cast<i32>(min_of(14 + 127 - static_cast<i64>(exponent), 126));
    inverse = ops::float_of(static_cast<u32>(127 - shift) << 23);
    return ops::float_of(static_cast<u32>(127 + shift) << 23);
  }

  static W4MOE_INLINE BlockRow row_of(const Fc2Args& a, i32 pair, i64 slot) {
    BlockRow row;
    row.pair = pair;
    row.source_row = slot;
    if (a.weight_on_input == 0) {
      row.factor = router_weight(a.router_weights, a.router_dtype, a.router_row_stride_elems, pair / a.topk, pair % a.topk);
    }
    return row;
  }

  static W4MOE_INLINE void fill_rows(const Fc2Args& a, const FoundBlock& found, BlockRow* table, float* scales) {
    const i32 r = ops::thread_index();
    if (found.row >= 0) table[found.row] = row_of(a, r, r);
    if (r < kTile.block_rows) {
      float scale = 1.0f;
      if (r >= found.block.rows) {
        table[r] = BlockRow{};
      } else if (a.direct.ids == nullptr) {
        const i64 slot = found.block.first_slot + r;
        table[r] = row_of(a, a.sorted_pairs[slot], slot);
        if constexpr (kScaledRows) {
          float inverse = 1.0f;
          scale = row_scale(a.h_amax[slot], inverse);
          scales[kTile.block_rows + r] = inverse;
        }
      }
      if constexpr (kScaledRows) scales[r] = scale;
    }
    ops::barrier();
  }

  static W4MOE_INLINE void finish(const Fc2Args& a, const RouteBlock& block, const BlockRow* table, const float* scales,
                                  i64 tile, i64 item) {
    const i64 row = item / (kTile.tile_rows() / kItem);
    const i64 in_tile = item % (kTile.tile_rows() / kItem) * kItem;
    const i64 column = tile * kTile.tile_rows() + in_tile;
    if (row >= block.rows || column >= V.hidden) return;

    const float global = a.globals[block.expert].down;
    const float* bias = a.bias == nullptr ? nullptr : a.bias + block.expert * kMatrix.padded_rows();
    float out[kItem];
    sum_partials<V, kItem>(ops::shared_memory(), row, in_tile, out);
#pragma unroll
    for (i32 i = 0; i < kItem; ++i) {
      if constexpr (kScaledRows) out[i] *= scales[kTile.block_rows + row];
      out[i] *= global;
      if (bias != nullptr) out[i] += bias[column + i];
      out[i] *= table[row].factor;
    }
    u8* to = static_cast<u8*>(a.route_rows) + table[row].pair * kScratch.route_row_bytes();
    store_row_values<kScratch.h_dtype(), kItem>(to, column, out);
  }

  static W4MOE_INLINE void run(const Fc2Args& a) {
    // FC1 lets this kernel start only once routing, or what wrote the ids, is complete, so the block and its weights need not wait for h.
    if constexpr (kScaledRows) ops::grid_wait();
    const i64 block_index = ops::block_index_x() / V.row_tiles();
    const i64 tile = ops::block_index_x() % V.row_tiles();
    u8* shared = ops::shared_memory();
    const FoundBlock found = block_of<V>(a, block_index, shared);
    const RouteBlock& block = found.block;
    if (block.rows == 0) {
      ops::grid_wait();
      return;
    }

    BlockRow* table = reinterpret_cast<BlockRow*>(shared + kTile.row_table_offset_bytes());
    float* scales = reinterpret_cast<float*>(shared + kTile.row_scales_offset_bytes());
    WeightStream<V> weights;  // needs the expert only: under way while the rows are looked up
    weights.start(a.weights + block.expert * kMatrix.expert_stride_bytes(), tile * kTile.tile_strips());
    fill_rows(a, found, table, scales);
    if constexpr (!kScaledRows) ops::grid_wait();
    ops::grid_launch_next();

    Stage stage;
    stage.init(shared, a.h, kScratch.h_row_bytes(), table, scales);
    Accumulators<V> acc;
    gemm_mainloop<V>(acc, stage, weights);
    store_partials<V>(acc, shared);
    ops::barrier();

    constexpr i64 kItems = kTile.tile_rows() / kItem * kTile.block_rows;
    for (i64 item = ops::thread_index(); item < kItems; item += kTile.threads()) finish(a, block, table, scales, tile, item);
  }
};

}  // namespace w4moe

W4MOE_KERNEL(w4moe::kVariant.threads(), w4moe::kVariant.min_ctas_per_sm()) w4moe_fc2(W4MOE_ARGS(w4moe::Fc2Args) args) {
  w4moe::Fc2<w4moe::kVariant>::run(args);
}
W4MOE_KERNEL_FACTS(w4moe::Fc2Args)
