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
  static constexpr i32 kTogether = 8;                           ///< routes whose rows are under way at a time

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

  static W4MOE_INLINE void run(const CombineArgs& a) {
    ops::grid_wait();
    ops::grid_launch_next();
    const i64 per_token = combine_ctas_per_token(a.hidden);
    const i64 token = ops::block_index_x() / per_token;
    const i64 column = (ops::block_index_x() % per_token * kCombineThreads + ops::thread_index()) * kRowVectorElems;
    if (column >= a.hidden) return;

    float sum[8] = {};
    if (a.control->magic != kControlMagic || a.control->version != kControlVersion) {
      // The scratch was not initialised or was overwritten: no number would be right.
#pragma unroll
      for (i32 i = 0; i < 8; ++i) sum[i] = ops::float_of(0x7fc00000u);
    } else {
      const i64 row_bytes = ScratchLayout{Shape{a.hidden, 0, 1, 1, 1}, V.dtype, 0}.route_row_bytes();
      const u8* rows = static_cast<const u8*>(a.route_rows) + token * a.topk * row_bytes + column * dtype_bytes(kRows);
      for (i32 first = 0; first < a.topk; first += kTogether) {
        // All ids before all rows before all sums: two latencies in all, not two per route. Sums in route order.
        bool valid[kTogether];
#pragma unroll
        for (i32 j = 0; j < kTogether; ++j) {
          valid[j] = first + j < a.topk &&
                     expert_of_pair(a.ids, a.id_type, a.ids_row_stride_elems, token, first + j, a.experts) >= 0;
        }
        RowVector row[kTogether];
#pragma unroll
        for (i32 j = 0; j < kTogether; ++j) {
#pragma unroll
          for (i32 i = 0; i < kVectors; ++i) {
            row[j].v[i] = valid[j] ? *reinterpret_cast<const ops::U32x4*>(rows + (first + j) * row_bytes + i * 16) : ops::U32x4{};
          }
        }
#pragma unroll
        for (i32 j = 0; j < kTogether; ++j) {
          if (valid[j]) add_vector(row[j], sum);
        }
      }
    }
    u8* out = static_cast<u8*>(a.out) + token * a.out_row_stride_elems * 2;
    store_row_values<V.dtype, 8>(out, column, sum);
  }
};

}  // namespace w4moe

W4MOE_KERNEL(w4moe::kVariant.threads(), 1) w4moe_combine(W4MOE_ARGS(w4moe::CombineArgs) args) {
  w4moe::Combine<w4moe::kVariant>::run(args);
}
W4MOE_KERNEL_FACTS(w4moe::CombineArgs)
