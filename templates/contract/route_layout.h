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

/// Routes of each block of an expert with `rows` routes, at most `block_rows` (a multiple of 8) each: as few blocks as that
/// allows, all of one size but the last, so that kernels with several widths waste little.
W4MOE_HD constexpr i32 even_block_rows(i32 rows, i32 block_rows) {
  const i32 blocks = (rows + block_rows - 1) / block_rows;
  return blocks < 2 ? block_rows : (rows + blocks * 8 - 1) / (blocks * 8) * 8;
}

/// Pairs that one CTA of the parallel routing kernels takes, where that needs at most kMaxRouteChunks of them.
inline constexpr i64 kRouteChunkPairs = 1024;
inline constexpr i64 kMaxRouteChunks = 64;
/// From this many pairs on, two parallel kernels beat the one-CTA kernel.
inline constexpr i64 kParallelRoutePairs = 2048;

/// The routing of at most `tokens` tokens into blocks of at most `block_rows` rows.
struct RouteLayout {
  i64 tokens = 0;
  i64 topk = 0;
  i64 experts = 0;
  i64 block_rows = 0;

  W4MOE_HD constexpr i64 pairs() const { return tokens * topk; }

  W4MOE_HD constexpr bool is_parallel() const { return pairs() >= kParallelRoutePairs; }
  /// CTAs of the parallel routing kernels, and the pairs that each takes.
  W4MOE_HD constexpr i64 chunks() const { return min_of(ceil_div(pairs(), kRouteChunkPairs), kMaxRouteChunks); }
  W4MOE_HD constexpr i64 chunk_pairs() const { return chunks() == 0 ? 0 : ceil_div(pairs(), chunks()); }
  /// Their table: [chunks][experts] i32, routes of each expert in each chunk.
  W4MOE_HD constexpr i64 chunk_table_bytes() const { return is_parallel() ? chunks() * experts * 4 : 0; }

  /// Largest number of blocks over all routings: every expert can hold one part-filled block, and each full block beyond that
  /// needs block_rows routes more. Exact: one route to each of min(E, R) experts, the rest to a single one.
  W4MOE_HD constexpr i64 max_blocks() const {
    const i64 touched = min_of(experts, pairs());
    return touched + (pairs() - touched) / block_rows;
  }
};

}  // namespace w4moe
