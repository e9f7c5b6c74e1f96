#include "runtime/dispatch/chunks.hpp"

namespace w4moe {
namespace {

/// Row `row` of strided rows; a stride of 0 stands for dense rows.
const void* row_at(const void* base, i64 row, i64 stride_elems, i64 width, i64 elem_bytes) {
  return static_cast<const u8*>(base) + strided_row_offset_bytes(row, stride_elems == 0 ? width : stride_elems, elem_bytes);
}

}  // namespace

RunArgs chunk_of(const Plan& plan, const RunArgs& args, i64 first) {
  const Shape& shape = plan.problem.shape;
  const i64 elem_bytes = dtype_bytes(plan.problem.dtype);
  RunArgs chunk = args;
  chunk.tokens = min_of(plan.chunk_tokens, args.tokens - first);
  chunk.x = row_at(args.x, first, args.x_row_stride_elems, shape.hidden, elem_bytes);
  chunk.out = const_cast<void*>(row_at(args.out, first, args.out_row_stride_elems, shape.hidden, elem_bytes));
  chunk.ids = row_at(args.ids, first, args.ids_row_stride_elems, shape.topk, id_type_bytes(args.id_type));
  chunk.router_weights = row_at(args.router_weights, first, args.router_row_stride_elems, shape.topk, dtype_bytes(args.router_dtype));
  return chunk;
}

}  // namespace w4moe
