// What the routing kernel hands to the GEMM kernels, and how many blocks m tokens can need at most.
#pragma once

#include "contract/shape.h"

namespace w4moe {

/// One block of routes of one expert: rows first_slot .. first_slot + rows - 1 of the expert-sorted order.
struct RouteBlock {
  i32 expert = 0;
  i32 first_slot = 0;
  i32 rows = 0;
  i32 reserved = 0;
};

/// The routing of at most `tokens` tokens into blocks of at most `block_rows` rows.
struct RouteLayout {
  i64 tokens = 0;
  i64 topk = 0;
  i64 experts = 0;
  i64 block_rows = 0;

  W4MOE_HD constexpr i64 pairs() const { return tokens * topk; }

  /// Largest number of blocks over all routings: every expert can hold one part-filled block, and each full block beyond that
  /// needs block_rows routes more. Exact: one route to each of min(E, R) experts, the rest to a single one.
  W4MOE_HD constexpr i64 max_blocks() const {
    const i64 touched = min_of(experts, pairs());
    return touched + (pairs() - touched) / block_rows;
  }
};

}  // namespace w4moe
