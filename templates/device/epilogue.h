// From fragments to finished sums: warps that split K leave their parts in shared memory, and whoever stores a value adds the
// parts in warp order, so that the bits depend on nothing but the variant.
#pragma once

#include "device/mainloop.h"

namespace w4moe {

/// Writes the warp's fragments as [warp_k][token][row] fp32 over the (finished) stages. The caller then waits at a barrier.
template <Variant V>
W4MOE_INLINE void store_partials(const Accumulators<V>& acc, u8* shared) {
  constexpr GemmTile kTile = V.tile;
  const i32 lane = ops::lane_index();
  const i32 warp_row = ops::warp_index() % kTile.warps_rows;
  const i32 warp_k = ops::warp_index() / kTile.warps_rows;
  float* plane = reinterpret_cast<float*>(shared) + warp_k * kTile.partial_plane_elems();
#pragma unroll
  for (i32 s = 0; s < kTile.strips_per_warp; ++s) {
    const i64 row = (warp_row * kTile.strips_per_warp + s) * kStripRows + lane / 4;
#pragma unroll
    for (i32 t = 0; t < kTile.block_rows / 8; ++t) {
      float* column = plane + (t * 8 + 2 * (lane % 4)) * kTile.partial_row_elems() + row;
      column[0] = acc.v[s][t][0];
      column[kTile.partial_row_elems()] = acc.v[s][t][1];
      column[kRowPairs] = acc.v[s][t][2];
      column[kTile.partial_row_elems() + kRowPairs] = acc.v[s][t][3];
    }
  }
}

/// Sum over the K shares of `Count` adjacent rows of one token, in warp order.
template <Variant V, i32 Count>
W4MOE_INLINE void sum_partials(const u8* shared, i64 token, i64 row, float (&out)[Count]) {
  constexpr GemmTile kTile = V.tile;
  const float* from = reinterpret_cast<const float*>(shared) + token * kTile.partial_row_elems() + row;
#pragma unroll
  for (i32 i = 0; i < Count; ++i) out[i] = from[i];
#pragma unroll
  for (i32 w = 1; w < kTile.warps_k; ++w) {
    from += kTile.partial_plane_elems();
#pragma unroll
    for (i32 i = 0; i < Count; ++i) out[i] += from[i];
  }
}

/// Rows one thread finishes at a time: few where a tile is small, so that all threads share the work, at most eight.
template <Variant V>
constexpr i32 rows_per_item(i64 tile_outputs) {
  const i64 each = tile_outputs * V.tile.block_rows / V.tile.threads();
  return each >= 8 ? 8 : each >= 4 ? 4 : 2;
}

/// Stores `Count` adjacent values of T as one access.
template <DType T, i32 Count>
W4MOE_INLINE void store_row_values(void* row, i64 first, const float (&v)[Count]) {
  if constexpr (T == DType::f32) {
    float* to = static_cast<float*>(row) + first;
#pragma unroll
    for (i32 i = 0; i < Count; ++i) to[i] = v[i];
  } else {
    u32* to = reinterpret_cast<u32*>(static_cast<u8*>(row) + first * 2);
    if constexpr (Count == 8) {
      *reinterpret_cast<ops::U32x4*>(to) = ops::U32x4{{ops::pack2<T>(v[0], v[1]), ops::pack2<T>(v[2], v[3]),
                                                       ops::pack2<T>(v[4], v[5]), ops::pack2<T>(v[6], v[7])}};
    } else if constexpr (Count == 4) {
      *reinterpret_cast<ops::U32x2*>(to) = ops::U32x2{{ops::pack2<T>(v[0], v[1]), ops::pack2<T>(v[2], v[3])}};
    } else {
      *to = ops::pack2<T>(v[0], v[1]);
    }
  }
}

/// Router weight of a route, fp32.
W4MOE_INLINE float router_weight(const void* weights, DType dtype, i64 row_stride_elems, i64 token, i64 j) {
  const i64 at = token * row_stride_elems + j;
  if (dtype == DType::f32) return static_cast<const float*>(weights)[at];
  return ops::float_of(static_cast<u32>(static_cast<const u16*>(weights)[at]) << 16);
}

}  // namespace w4moe
