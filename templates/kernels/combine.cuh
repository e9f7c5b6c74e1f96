// Combine: each output row is the fp32 sum of its routes' rows in route order, rounded once. A token without a valid route is zero.
#include "contract/args.h"
#include "device/epilogue.h"
#include "device/facts.h"
#include "device/route_ids.h"

namespace w4moe {

template <Variant V>
struct Combine {
  static constexpr DType kRows = V.dtype == DType::f16 ? DType::f32 : V.dtype;

  static constexpr i32 kVectors = kRows == DType::f32 ? 2 : 1;  ///< 16-byte loads of one row

  struct RowVector {
    ops::U32x4 v[kVectors];
  };

  static W4MOE_INLINE void add_vector(const RowVector& row, float (&sum)[8]) {
#pragma unroll
    for (i32 i = 0; i < 8; ++i) {
      if constexpr (kRows == DType::f32) {
        sum[i] += ops::float_of(row.v[i / 4].v[i % 4]);
      } else {
        const u32 pair = row.v[0].v[i / 2];
        sum[i] += (i & 1) == 0 ? ops::unpack_lo<kRows>(pair) : ops::unpack_hi<kRows>(pair);
      }
    }
  }

  /// Takes `Together` routes at a time, all ids before all rows before all sums: two latencies for these, not two per route. Sums in
  /// route order.
  template <i32 Together>
  static W4MOE_INLINE void add_rows(const CombineArgs& a, i64 token, const u8* rows, i64 row_bytes, float (&sum)[8]) {
    for (i32 first = 0; first < a.topk; first += Together) {
      bool valid[Together];
#pragma unroll
      for (i32 j = 0; j < Together; ++j) {
        valid[j] = first + j < a.topk && expert_of_pair(a.ids, a.id_type, a.ids_row_stride_elems, token, first + j, a.experts) >= 0;
      }
      RowVector row[Together];
#pragma unroll
      for (i32 j = 0; j < Together; ++j) {
#pragma unroll
        for (i32 i = 0; i < kVectors; ++i) {
          row[j].v[i] = valid[j] ? *reinterpret_cast<const ops::U32x4*>(rows + (first + j) * row_bytes + i * 16) : ops::U32x4{};
        }
      }
#pragma unroll
      for (i32 j = 0; j < Together; ++j) {
        if (valid[j]) add_vector(row[j], sum);
      }
    }
  }

  static W4MOE_INLINE void run(const CombineArgs& a) {
    ops::grid_wait();
    ops::grid_launch_next();
    const i64 vectors = combine_vectors(a.hidden);
    const i64 vector = ops::block_index_x() * kCombineThreads + ops::thread_index();
    const i64 token = vector / vectors;
    const i64 column = (vector - token * vectors) * kRowVectorElems;
    if (token >= a.tokens) return;

    float sum[8] = {};
    if (a.control->magic != kControlMagic || a.control->version != kControlVersion) {
      // The scratch was not initialised or was overwritten: no number would be right.
#pragma unroll
      for (i32 i = 0; i < 8; ++i) sum[i] = ops::float_of(0x7fc00000u);
    } else {
      const i64 row_bytes = ScratchLayout{Shape{a.hidden, 0, 1, 1, 1}, V.dtype, 0}.route_row_bytes();
      const u8* rows = static_cast<const u8*>(a.route_rows) + token * a.topk * row_bytes + column * dtype_bytes(kRows);
      if (a.topk <= 2) {
        add_rows<2>(a, token, rows, row_bytes, sum);
      } else if (a.topk <= 4) {
        add_rows<4>(a, token, rows, row_bytes, sum);
      } else {
        add_rows<8>(a, token, rows, row_bytes, sum);
      }
    }
    u8* out = static_cast<u8*>(a.out) + token * a.out_row_stride_elems * 2;
    store_row_values<V.dtype, 8>(out, column, sum);
  }
};

}  // namespace w4moe

W4MOE_KERNEL(w4moe::kVariant.threads(), 4) w4moe_combine(W4MOE_ARGS(w4moe::CombineArgs) args) {
  w4moe::Combine<w4moe::kVariant>::run(args);
}
W4MOE_KERNEL_FACTS(w4moe::CombineArgs)
