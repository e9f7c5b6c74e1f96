// FC2 of a single token: h of all its routes times W2 of their experts in one K loop, straight into the output row.
// A CTA owns 16 hidden columns; its warps take the units of all routes in turn and their sums are added in warp order.
#include "contract/args.h"
#include "device/dequant.h"
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
  static constexpr i32 kDepth = V.tile.units_per_warp;
  static constexpr i32 kHRowBytes = static_cast<i32>(kMatrix.padded_k()) * 2;
  static constexpr i32 kHUnitBytes = static_cast<i32>(kUnitK) * 2;
  static_assert(V.dtype == DType::bf16, "fp16 keeps h in fp32: served by the kernels with routing");

  /// A route as the CTA needs it.
  struct RouteFactor {
    const u8* strip;  ///< the CTA's strip of its expert; null where the id is not one of ours: it contributes nothing
    float scale;      ///< multiplies the sum over K
    float weight;     ///< multiplies the bias
  };
  static_assert(sizeof(RouteFactor) == 16, "routes_bytes() counts 16 bytes a route");

  /// Streams the units that one warp owns: unit u of the token is unit u % kUnits of route u / kUnits.
  struct Stream {
    UnitRegisters<V.format> slots[kDepth];
    const RouteFactor* routes;
    i32 total;   // units of all routes
    i32 stride;  // bytes between the strip's units

    W4MOE_INLINE void load(i32 slot, i32 u) {
      if (u >= total) return;
      const u8* strip = routes[u / kUnits].strip;
      if (strip != nullptr) load_unit<V.format>(slots[slot], strip + u % kUnits * stride);
    }
  };

  static W4MOE_INLINE void run(const Fc2DirectArgs& a) {
    u8* shared = ops::shared_memory();
    RouteFactor* routes = reinterpret_cast<RouteFactor*>(shared + kTile.routes_offset_bytes());
    const i32 thread = ops::thread_index();
    const i32 lane = ops::lane_index();
    const i32 warp = ops::warp_index();
    const i64 strip = ops::block_index_x();

    // Ids and weights are inputs: FC1 lets this kernel start only after whatever wrote them.
    if (thread < a.topk) {
      RouteFactor r{};
      const i32 expert = expert_of_pair(a.direct.ids, a.direct.id_type, 0, 0, thread, a.direct.experts);
      if (expert >= 0) {
        r.strip = a.weights + kMatrix.unit_offset_bytes(expert, strip, 0);
        r.weight = a.weight_on_input != 0 ? 1.0f : router_weight(a.router_weights, a.router_dtype, 0, 0, thread);
        r.scale = a.globals[expert].down * r.weight;
      }
      routes[thread] = r;
    }
    ops::barrier();
    Stream stream;
    stream.routes = routes;
    stream.stride = static_cast<i32>(kMatrix.unit_stride_bytes(strip));
    stream.total = a.topk * kUnits;
#pragma unroll
    for (i32 j = 0; j < kDepth; ++j) {
      stream.slots[j] = UnitRegisters<V.format>{};
      stream.load(j, warp + j * kWarps);
    }

    ops::grid_wait();
    ops::grid_launch_next();
    u8* h = shared + kTile.h_offset_bytes();
    stage_h(a, routes, h);

    float low = 0.0f;   // row g of this quad's strip rows, column 0 of the fragment
    float high = 0.0f;  // row g + 8
    const ops::SharedAddress fragments = ops::shared_address(h) + lane / 8 * 16;
#pragma unroll 1
    for (i32 first = warp; first < stream.total; first += kDepth * kWarps) {
#pragma unroll
      for (i32 j = 0; j < kDepth; ++j) {
        const i32 u = first + j * kWarps;
        if (u < stream.total) {
          const RouteFactor& route = routes[u / kUnits];
          // Rows of h are whole units long, so unit u of the token lies at u times its bytes.
          if (route.strip != nullptr) add_unit(stream.slots[j], fragments + u * kHUnitBytes, route.scale, low, high);
        }
        stream.load(j, u + kDepth * kWarps);
      }
    }

    float* partials = reinterpret_cast<float*>(shared + kTile.partials_offset_bytes());
    if (lane % 4 == 0) {
      partials[warp * kStripRows + lane / 4] = low;
      partials[warp * kStripRows + lane / 4 + kRowPairs] = high;
    }
    ops::barrier();
    store_outputs(a, routes, partials, strip);
  }

  /// h of every route, whole rows; columns past I and routes without an expert become zero.
  static W4MOE_INLINE void stage_h(const Fc2DirectArgs& a, const RouteFactor* routes, u8* h) {
    constexpr TailRule kTail{kMatrix.k, 0};
    constexpr i32 kVectors = kHRowBytes / 16;
    const i32 all = a.topk * kVectors;
    for (i32 i = ops::thread_index(); i < all; i += V.tile.threads()) {
      const i32 route = i / kVectors;
      const i32 first = i % kVectors * static_cast<i32>(kRowVectorElems);
      const i64 valid = routes[route].strip == nullptr ? 0 : kTail.valid_vector_bytes(first, 2);
      const u8* from = static_cast<const u8*>(a.h) + route * kScratch.h_row_bytes() + (valid > 0 ? first * 2 : 0);
      ops::copy16_async(ops::shared_address(h + i * 16), from, static_cast<i32>(valid));
    }
    ops::copy_commit();
    ops::copy_wait<0>();
    ops::barrier();
  }

  /// One unit: every column of B is the same h row, so that column 0 of the fragment holds the token.
  static W4MOE_INLINE void add_unit(const UnitRegisters<V.format>& unit, ops::SharedAddress row, float scale, float& low, float& high) {
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    add_half<0>(unit, row, sum);
    add_half<1>(unit, row + 64, sum);
    low += sum[0] * scale;
    high += sum[2] * scale;
  }

  template <i32 P>
  static W4MOE_INLINE void add_half(const UnitRegisters<V.format>& unit, ops::SharedAddress row, float (&sum)[4]) {
    u32 a0[4];
    u32 a1[4];
    u32 b[4];
    dequantise_step<V.format, V.dtype, 2 * P>(unit, a0);
    dequantise_step<V.format, V.dtype, 2 * P + 1>(unit, a1);
    ops::load_matrix_x4(b, row);
    if constexpr (scales_on_accumulator(V.format, V.dtype)) {
      float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      ops::mma_16816<V.dtype>(part, a0, b[0], b[1]);
      ops::mma_16816<V.dtype>(part, a1, b[2], b[3]);
      sum[0] += part[0] * accumulator_scale<V.format, V.dtype>(unit, P, 0);
      sum[2] += part[2] * accumulator_scale<V.format, V.dtype>(unit, P, 1);
    } else {
      ops::mma_16816<V.dtype>(sum, a0, b[0], b[1]);
      ops::mma_16816<V.dtype>(sum, a1, b[2], b[3]);
    }
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
        if (routes[j].strip == nullptr) continue;
        const i32 expert = expert_of_pair(a.direct.ids, a.direct.id_type, 0, 0, j, a.direct.experts);
        const float* bias = a.bias + expert * kMatrix.padded_rows() + column;
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
