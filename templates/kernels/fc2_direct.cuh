// FC2 of a single token: h of all its routes times W2 of their experts in one K loop, straight into the output row.
// A CTA owns 16 hidden columns; each warp takes consecutive units of one route, and their sums are added in warp order.
#include "contract/args.h"
#include "device/direct.h"
#include "device/epilogue.h"
#include "device/facts.h"
#include "device/route_ids.h"

namespace w4moe {

template <Variant V>
struct Fc2Direct {
  static constexpr DirectTile kTile{V.tile};
  static constexpr MatrixLayout kMatrix = V.matrix();
  static constexpr ScratchLayout kScratch{Shape{V.hidden, V.intermediate, 1, 1, 1}, V.dtype, 0};
  static constexpr i32 kWarps = V.tile.warps();
  static constexpr i32 kUnits = static_cast<i32>(kMatrix.k_units());
  static constexpr i32 kHRowBytes = static_cast<i32>(kMatrix.padded_k()) * 2;
  static_assert(V.dtype == DType::bf16, "fp16 keeps h in fp32: served by the kernels with routing");

  /// A route as the last step needs it.
  struct RouteFactor {
    i32 expert;       ///< -1 where the id is not one of ours: it contributes nothing
    float weight;     ///< multiplies the bias
    i32 reserved[2];
  };
  static_assert(sizeof(RouteFactor) == 16, "routes_bytes() counts 16 bytes a route");

  /// The part of the token that a warp works on: consecutive units of one route.
  struct Share {
    i32 expert = -1;
    i32 first = 0;
    i32 units = 0;
  };

  static W4MOE_INLINE i32 expert_of(const Fc2DirectArgs& a, i32 route) {
    return expert_of_pair(a.direct.ids, a.direct.id_type, 0, 0, route, a.direct.experts);
  }
  static W4MOE_INLINE float weight_of(const Fc2DirectArgs& a, i32 route) {
    return a.weight_on_input != 0 ? 1.0f : router_weight(a.router_weights, a.router_dtype, 0, 0, route);
  }

  /// What the sums of a route are multiplied by.
  static W4MOE_INLINE float scale_of(const Fc2DirectArgs& a, i32 expert, i32 route) {
    return expert < 0 ? 0.0f : a.globals[expert].down * weight_of(a, route) * (kLiftsRow<V> ? kUnlift : 1.0f);
  }

  static W4MOE_INLINE Share share_of(const Fc2DirectArgs& a, i32 route, i32 part, i32 parts) {
    Share share;
    share.expert = expert_of(a, route);
    const i32 each = static_cast<i32>(ceil_div(kUnits, parts));
    share.first = part * each;
    share.units = share.expert < 0 ? 0 : static_cast<i32>(min_of(max_of(kUnits - share.first, 0), each));
    return share;
  }

  static W4MOE_INLINE void run(const Fc2DirectArgs& a) {
    u8* shared = ops::shared_memory();
    RouteFactor* routes = reinterpret_cast<RouteFactor*>(shared + kTile.routes_offset_bytes());
    const i32 thread = ops::thread_index();
    const i32 lane = ops::lane_index();
    const i32 warp = ops::warp_index();
    const i64 strip = ops::block_index_x();

    // Ids and weights are inputs: FC1 lets this kernel start only after whatever wrote them.
    const i32 parts = a.topk < kWarps ? kWarps / a.topk : 1;  // warps per route
    const i32 together = kWarps / parts;                      // routes at a time
    const i32 part = warp % parts;
    i32 route = warp / parts;
    Share share;
    DirectWarp<V> stream;
    if (route < a.topk && route < together) share = share_of(a, route, part, parts);
    stream.start(a.weights + (share.units > 0 ? kMatrix.unit_offset_bytes(share.expert, strip, share.first) : 0), strip, share.units);
    float scale = scale_of(a, share.expert, route);
    if (thread < a.topk) routes[thread] = RouteFactor{expert_of(a, thread), weight_of(a, thread), {0, 0}};

    ops::grid_wait();
    ops::grid_launch_next();
    float low = 0.0f;   // row g of this quad's strip rows
    float high = 0.0f;  // row g + 8
    while (true) {
      if (share.units > 0) {
        u8* h = shared + kTile.h_offset_bytes() + route * kHRowBytes;
        constexpr i32 kVectors = DirectWarp<V>::kRowVectors;
        stage_row<V>(static_cast<const u8*>(a.h) + route * kScratch.h_row_bytes(), h, share.first * kVectors + lane,
                     (share.first + share.units) * kVectors, static_cast<i32>(kLanes));
        ops::warp_sync();
        float sum_low = 0.0f;
        float sum_high = 0.0f;
        stream.run(ops::shared_address(h) + static_cast<u32>(share.first * DirectWarp<V>::kRowUnitBytes), sum_low, sum_high);
        low += sum_low * scale;
        high += sum_high * scale;
      }
      route += together;  // more routes than warps
      if (route >= a.topk || warp / parts >= together) break;
      share = share_of(a, route, part, parts);
      stream.start(a.weights + (share.units > 0 ? kMatrix.unit_offset_bytes(share.expert, strip, share.first) : 0), strip, share.units);
      scale = scale_of(a, share.expert, route);
    }

    float* partials = reinterpret_cast<float*>(shared + kTile.partials_offset_bytes());
    if (lane % 4 == 0) {
      partials[warp * kStripRows + lane / 4] = low;
      partials[warp * kStripRows + lane / 4 + kRowPairs] = high;
    }
    ops::barrier();
    store_outputs(a, routes, partials, strip);
  }

  /// Two adjacent outputs per thread.
  static W4MOE_INLINE void store_outputs(const Fc2DirectArgs& a, const RouteFactor* routes, const float* partials, i64 strip) {
    const i32 row = ops::thread_index() * 2;
    const i64 column = strip * kStripRows + row;
    if (row >= kStripRows || column >= V.hidden) return;
    float out[2] = {partials[row], partials[row + 1]};
#pragma unroll
    for (i32 w = 1; w < kWarps; ++w) {
      out[0] += partials[w * kStripRows + row];
      out[1] += partials[w * kStripRows + row + 1];
    }
    if (a.bias != nullptr) {
      for (i32 j = 0; j < a.topk; ++j) {
        if (routes[j].expert < 0) continue;
        const float* bias = a.bias + routes[j].expert * kMatrix.padded_rows() + column;
        out[0] += bias[0] * routes[j].weight;
        out[1] += bias[1] * routes[j].weight;
      }
    }
    if (a.control->magic != kControlMagic || a.control->version != kControlVersion) out[0] = out[1] = ops::float_of(0x7fc00000u);
    store_row_values<V.dtype, 2>(a.out, column, out);
  }
};

}  // namespace w4moe

W4MOE_KERNEL(w4moe::kVariant.threads(), w4moe::kVariant.min_ctas_per_sm()) w4moe_fc2_direct(W4MOE_ARGS(w4moe::Fc2DirectArgs) args) {
  w4moe::Fc2Direct<w4moe::kVariant>::run(args);
}
W4MOE_KERNEL_FACTS(w4moe::Fc2DirectArgs)
