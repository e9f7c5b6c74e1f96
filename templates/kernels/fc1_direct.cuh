// FC1 of a single token: a CTA owns `warps_rows` strips of one route's expert; `warps_k` warps share the K of each, and their sums
// are added in warp order.
#include "contract/args.h"
#include "device/activation.h"
#include "device/direct.h"
#include "device/epilogue.h"
#include "device/facts.h"
#include "device/route_ids.h"

namespace w4moe {

template <Variant V>
struct Fc1Direct {
  static constexpr DirectTile kTile{V.tile};
  static constexpr MatrixLayout kMatrix = V.matrix();
  static constexpr bool kGated = is_gated(V.activation);
  static constexpr ScratchLayout kScratch{Shape{V.hidden, V.intermediate, 1, 1, 1}, V.dtype, 0};
  static constexpr i32 kStrips = V.tile.warps_rows;
  static constexpr i32 kShares = V.tile.warps_k;
  static constexpr i32 kUnits = static_cast<i32>(kMatrix.k_units());
  static constexpr i32 kShareUnits = static_cast<i32>(ceil_div(kUnits, kShares));
  static constexpr i32 kStripFeatures = static_cast<i32>(fc1_strip_features(kGated));
  static_assert(V.dtype == DType::bf16, "fp16 keeps h in fp32: served by the kernels with routing");

  static W4MOE_INLINE void run(const Fc1Args& a) {
    ops::grid_wait();
    ops::grid_launch_next();
    const i64 route = ops::block_index_x() / V.row_tiles();
    const i64 tile = ops::block_index_x() % V.row_tiles();
    const RouteBlock block = direct_block(a.direct, route);
    if (block.rows == 0) return;

    u8* shared = ops::shared_memory();
    const i32 warp = ops::warp_index();
    const i64 strip = tile * kStrips + warp / kShares;
    const i32 first = warp % kShares * kShareUnits;
    const i32 units = strip < kMatrix.strips() ? static_cast<i32>(min_of(max_of(kUnits - first, 0), kShareUnits)) : 0;
    DirectWarp<V> stream;
    stream.start(a.weights + (units > 0 ? kMatrix.unit_offset_bytes(block.expert, strip, first) : 0), strip, units);
    u8* x = shared + kTile.h_offset_bytes();
    stage_row<V>(static_cast<const u8*>(a.x), x, ops::thread_index(), kUnits * DirectWarp<V>::kRowVectors, V.tile.threads());
    ops::barrier();
    float low = 0.0f;
    float high = 0.0f;
    stream.run(ops::shared_address(x) + static_cast<u32>(first * DirectWarp<V>::kRowUnitBytes), low, high);

    float* partials = reinterpret_cast<float*>(shared + kTile.partials_offset_bytes());
    const i32 lane = ops::lane_index();
    if (lane % 4 == 0) {
      partials[warp * kStripRows + lane / 4] = low;
      partials[warp * kStripRows + lane / 4 + kRowPairs] = high;
    }
    ops::barrier();
    finish(a, block, partials, tile);
  }

  static W4MOE_INLINE float sum_of(const float* partials, i32 strip, i32 row) {
    float sum = 0.0f;
#pragma unroll
    for (i32 w = 0; w < kShares; ++w) sum += partials[(strip * kShares + w) * kStripRows + row];
    return sum;
  }

  /// Two adjacent features per thread.
  static W4MOE_INLINE void finish(const Fc1Args& a, const RouteBlock& block, const float* partials, i64 tile) {
    const i32 in_tile = ops::thread_index() * 2;
    if (in_tile >= kStrips * kStripFeatures) return;
    const i32 strip = in_tile / kStripFeatures;
    const i64 feature = tile * kStrips * kStripFeatures + in_tile;
    if (feature >= V.intermediate) return;
    const ExpertGlobals globals = a.globals[block.expert];
    float factor = kLiftsRow<V> ? kUnlift : 1.0f;
    if (a.weight_on_input != 0) factor *= router_weight(a.router_weights, a.router_dtype, 0, 0, block.first_slot);
    const i64 packed = (tile * kStrips + strip) * kStripRows;
    const float* bias = a.bias == nullptr ? nullptr : a.bias + block.expert * kMatrix.padded_rows() + packed;
    float out[2];
#pragma unroll
    for (i32 i = 0; i < 2; ++i) {
      const i32 row = in_tile % kStripFeatures + i;
      float gate = sum_of(partials, strip, row) * globals.gate * factor;
      float up = 0.0f;
      if (bias != nullptr) gate += bias[row];
      if constexpr (kGated) {
        up = sum_of(partials, strip, row + static_cast<i32>(kRowPairs)) * globals.up * factor;
        if (bias != nullptr) up += bias[row + kRowPairs];
      }
      out[i] = activate<V.activation>(gate, up, a.activation);
    }
    store_row_values<V.dtype, 2>(static_cast<u8*>(a.h) + block.first_slot * kScratch.h_row_bytes(), feature, out);
  }
};

}  // namespace w4moe

W4MOE_KERNEL(w4moe::kVariant.threads(), w4moe::kVariant.min_ctas_per_sm()) w4moe_fc1_direct(W4MOE_ARGS(w4moe::Fc1Args) args) {
  w4moe::Fc1Direct<w4moe::kVariant>::run(args);
}
W4MOE_KERNEL_FACTS(w4moe::Fc1Args)
