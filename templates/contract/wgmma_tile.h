// How a GEMM kernel of the wgmma family cuts its work. Two consumer warpgroups hold the weights of a tile as wgmma operands in
// registers; a producer warpgroup gathers tokens and streams packed units into a ring of stages.
#pragma once

#include "contract/scratch_layout.h"

namespace w4moe {

inline constexpr i32 kWgmmaConsumerGroups = 2;
inline constexpr i32 kWgmmaGroupThreads = 128;
inline constexpr i32 kWgmmaGroupWarps = 4;
inline constexpr i32 kWgmmaMaxWidths = 6;
inline constexpr i32 kWgmmaTables = 4;           ///< row tables in flight
inline constexpr i32 kWgmmaStagedTokens = 16;    ///< tokens whose outputs a warp passes through shared memory at a time
inline constexpr i64 kSwizzleRowBytes = 128;     ///< a token's 64 K; 16-byte vectors are swizzled inside groups of eight rows
inline constexpr i64 kSwizzleAtomBytes = 1024;

/// The producer keeps its token rows as 32-bit distances in 16-byte vectors: what it can gather from, 64 GiB.
W4MOE_HD constexpr bool wgmma_reaches(i64 rows, i64 row_stride_elems, i64 elem_bytes) {
  return row_stride_elems == 0 || rows <= (i64{1} << 36) / elem_bytes / row_stride_elems;
}

struct WgmmaTile {
  i32 widths[kWgmmaMaxWidths] = {8, 0, 0, 0, 0, 0};  ///< token widths a tile can take, ascending multiples of 8, 0 = unused
  i32 blocks_per_group = 2;                          ///< 64-row blocks per consumer warpgroup
  i32 stage_units = 2;                               ///< units (64 K) per stage
  i32 stages = 4;
  i32 steps_per_group = 1;                           ///< k16 steps per wgmma group: 1, 2 or 4; more where tokens are few

  constexpr bool operator==(const WgmmaTile&) const = default;

  W4MOE_HD constexpr i32 width_count() const {
    i32 n = 0;
    for (i32 i = 0; i < kWgmmaMaxWidths; ++i) n += widths[i] > 0 ? 1 : 0;
    return n;
  }
  W4MOE_HD constexpr i32 max_width() const { return widths[width_count() - 1]; }
  /// Smallest width that holds `rows` routes, at most max_width().
  W4MOE_HD constexpr i32 width_for(i32 rows) const {
    i32 width = max_width();
    for (i32 i = width_count() - 1; i >= 0; --i) width = rows <= widths[i] ? widths[i] : width;
    return width;
  }

  W4MOE_HD constexpr i32 threads() const { return (kWgmmaConsumerGroups + 1) * kWgmmaGroupThreads; }
  W4MOE_HD constexpr i32 consumer_warps() const { return kWgmmaConsumerGroups * kWgmmaGroupWarps; }
  W4MOE_HD constexpr i64 tile_strips() const { return consumer_warps() * static_cast<i64>(blocks_per_group); }
  W4MOE_HD constexpr i64 tile_rows() const { return tile_strips() * kStripRows; }

  W4MOE_HD constexpr i64 stage_k() const { return stage_units * kUnitK; }

  /// Tokens of a stage: per unit [max_width rows][64 elements].
  W4MOE_HD constexpr i64 token_unit_bytes() const { return align_up(max_width() * kSwizzleRowBytes, kSwizzleAtomBytes); }
  W4MOE_HD constexpr i64 token_stage_bytes() const { return stage_units * token_unit_bytes(); }
  /// Where vector `vector` (0..7) of token `row` lies inside a unit.
  W4MOE_HD constexpr i64 token_vector_offset_bytes(i64 row, i64 vector) const {
    return row * kSwizzleRowBytes + ((vector ^ row) & 7) * 16;
  }
  /// Weights of a stage, as they lie in memory: per group of strips stage_units times the units of its strips.
  W4MOE_HD constexpr i64 tile_groups() const { return tile_strips() / kGroupStrips; }
  W4MOE_HD constexpr i64 group_stage_bytes(i64 unit_bytes) const { return stage_units * kGroupStrips * unit_bytes; }
  W4MOE_HD constexpr i64 weight_stage_bytes(i64 unit_bytes) const { return tile_groups() * group_stage_bytes(unit_bytes); }

  W4MOE_HD constexpr i64 tokens_offset_bytes(i64 stage) const { return stage * token_stage_bytes(); }
  W4MOE_HD constexpr i64 weights_offset_bytes(i64 stage, i64 unit_bytes) const {
    return stages * token_stage_bytes() + stage * weight_stage_bytes(unit_bytes);
  }
  /// Per consumer warp: kWgmmaStagedTokens tokens x the rows of its blocks of outputs on their way to global memory, rows padded by 16 bytes.
  W4MOE_HD constexpr i64 staging_row_bytes() const { return 2 * kStripRows * 2 + 16; }
  W4MOE_HD constexpr i64 staging_warp_bytes() const { return kWgmmaStagedTokens * staging_row_bytes(); }
  W4MOE_HD constexpr i64 staging_offset_bytes(i64 unit_bytes) const {
    return align_up(weights_offset_bytes(stages, unit_bytes), kSwizzleRowBytes);
  }
  W4MOE_HD constexpr i64 tables_offset_bytes(i64 unit_bytes) const {
    return align_up(staging_offset_bytes(unit_bytes) + consumer_warps() * staging_warp_bytes(), 16);
  }
  W4MOE_HD constexpr i64 table_bytes() const { return static_cast<i64>(max_width()) * 16; }
  /// mbarriers: full and empty per stage, empty per table.
  W4MOE_HD constexpr i64 barriers_offset_bytes(i64 unit_bytes) const {
    return tables_offset_bytes(unit_bytes) + kWgmmaTables * table_bytes();
  }
  W4MOE_HD constexpr i64 shared_bytes(i64 unit_bytes) const {
    return barriers_offset_bytes(unit_bytes) + (2 * stages + kWgmmaTables) * 8;
  }
};

}  // namespace w4moe
