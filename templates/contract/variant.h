// One kernel's specialisation: everything the compiler folds. A structural type, so that it is a template argument.
// What is not here (E, m, top-k, ids and router-weight types, alpha, beta, limit, biases, strides) is a run-time argument:
// kernels that differ only there are built once.
#pragma once

#include "contract/layout_id.h"
#include "contract/scratch_layout.h"
#include "contract/tail_rule.h"
#include "contract/wgmma_tile.h"

namespace w4moe {

enum class KernelKind : u8 {
  route,    ///< ids -> blocks of routes by expert, one CTA
  fc1,      ///< tokens x W13 -> activation -> h
  fc2,      ///< h x W2 -> weighted route rows
  combine,  ///< route rows -> outputs, summed over top-k in fp32 in route order
  fc2_direct,  ///< one token: h x W2 of all its experts -> output
  pack,     ///< checkpoint tensors -> packed units
  scan,     ///< checkpoint scales -> exponent windows
  route_count,  ///< parallel routing: ids -> routes per expert and chunk
  fc1_direct,  ///< one token: x x W13 -> h
  route_place,  ///< parallel routing: those -> blocks and slots
};

/// Kernel families: sets of GEMM kernels that share one way of working. All read the same packed weights.
enum class Family : u8 {
  portable,  ///< mma.sync and cp.async, sm_80 and later
  wgmma,     ///< sm_90a: weights as wgmma operands in registers
};

/// Instruction set of the target. The value is 10 x compute capability.
enum class Arch : u16 { sm_80 = 800, sm_86 = 860, sm_89 = 890, sm_90a = 900, sm_100a = 1000, sm_103a = 1030, sm_120a = 1200, sm_121a = 1210 };

/// How a GEMM kernel of the portable family cuts its work (the wgmma family's: wgmma_tile.h). A CTA computes `tile_rows()` packed rows for one block of routes.
struct GemmTile {
  i32 block_rows = 8;        ///< routes (n) per block: 8, 16, 32 or 64
  i32 warps_rows = 4;        ///< warps side by side along packed rows
  i32 warps_k = 2;           ///< warps that share the rows and split K; their sums are added in warp order
  i32 strips_per_warp = 1;   ///< 16-row strips each warp holds
  i32 units_per_warp = 4;    ///< units of a stage that one warp works on: also its weight prefetch depth
  i32 stages = 3;            ///< token stages in shared memory
  i32 min_ctas_per_sm = 1;   ///< launch bound

  constexpr bool operator==(const GemmTile&) const = default;

  W4MOE_HD constexpr i32 warps() const { return warps_rows * warps_k; }
  W4MOE_HD constexpr i32 threads() const { return warps() * static_cast<i32>(kLanes); }
  W4MOE_HD constexpr i64 tile_strips() const { return static_cast<i64>(warps_rows) * strips_per_warp; }
  W4MOE_HD constexpr i64 tile_rows() const { return tile_strips() * kStripRows; }
  W4MOE_HD constexpr i64 stage_units() const { return static_cast<i64>(units_per_warp) * warps_k; }
  W4MOE_HD constexpr i64 stage_k() const { return stage_units() * kUnitK; }
  /// One stage of tokens: [block_rows][stage_k] 16-bit elements, 16-byte vectors swizzled inside 128-byte lines.
  W4MOE_HD constexpr i64 stage_row_bytes() const { return stage_k() * 2; }
  W4MOE_HD constexpr i64 stage_bytes() const { return block_rows * stage_row_bytes(); }
  W4MOE_HD constexpr i64 pipeline_bytes() const { return stages * stage_bytes(); }
  /// Partial sums: [warps_k][block_rows][tile_rows + pad] fp32; they reuse the stages once the last one is consumed.
  W4MOE_HD constexpr i64 partial_row_elems() const { return tile_rows() + 4; }
  W4MOE_HD constexpr i64 partial_plane_elems() const { return block_rows * partial_row_elems(); }
  W4MOE_HD constexpr i64 partial_bytes() const { return warps_k * partial_plane_elems() * 4; }
  /// Row table of the block: for each row its source row, its route and its factor.
  W4MOE_HD constexpr i64 row_table_offset_bytes() const { return align_up(max_of(pipeline_bytes(), partial_bytes()), 16); }
  W4MOE_HD constexpr i64 row_table_bytes() const { return block_rows * 16; }
  /// FC2 of fp16 layers: a scale and its inverse for each row.
  W4MOE_HD constexpr i64 row_scales_offset_bytes() const { return row_table_offset_bytes() + row_table_bytes(); }
  W4MOE_HD constexpr i64 row_scales_bytes() const { return block_rows * 8; }
  W4MOE_HD constexpr i64 shared_bytes() const { return row_scales_offset_bytes() + row_scales_bytes(); }
};

/// The direct kernels of a single token. FC1: warps_rows strips of one route, warps_k warps for each. FC2: one strip, all warps
/// spread over the routes. units_per_warp is how many units a warp has under way.
struct DirectTile {
  GemmTile tile;

  /// The token's rows: [topk][padded K] 16-bit elements.
  W4MOE_HD constexpr i64 h_bytes(i64 padded_k, i64 topk) const { return topk * padded_k * 2; }
  W4MOE_HD constexpr i64 partials_offset_bytes() const { return 0; }
  W4MOE_HD constexpr i64 partials_bytes() const { return tile.warps() * kStripRows * 4; }
  /// Expert, factor and output bias share of each route.
  W4MOE_HD constexpr i64 routes_offset_bytes() const { return partials_offset_bytes() + partials_bytes(); }
  W4MOE_HD constexpr i64 routes_bytes() const { return kMaxTopk * 16; }
  W4MOE_HD constexpr i64 h_offset_bytes() const { return align_up(routes_offset_bytes() + routes_bytes(), 128); }
  W4MOE_HD constexpr i64 shared_bytes(i64 padded_k, i64 topk) const { return h_offset_bytes() + h_bytes(padded_k, topk); }
};

struct Variant {
  KernelKind kind = KernelKind::route;
  Arch arch = Arch::sm_90a;
  i64 hidden = 0;        ///< 0 where the kernel does not depend on it
  i64 intermediate = 0;  ///< likewise
  QuantFormat format{};
  Activation activation = Activation::silu;
  DType dtype = DType::bf16;
  GemmTile tile{};       ///< GEMM kernels of the portable family
  Family family = Family::portable;
  WgmmaTile wgmma{};     ///< GEMM kernels of the wgmma family

  constexpr bool operator==(const Variant&) const = default;

  W4MOE_HD constexpr bool is_gemm() const { return kind == KernelKind::fc1 || kind == KernelKind::fc2 || is_direct(); }
  W4MOE_HD constexpr bool is_direct() const { return kind == KernelKind::fc1_direct || kind == KernelKind::fc2_direct; }

  /// Hopper and later: programmatic dependent launch between the kernels of a layer.
  W4MOE_HD constexpr bool has_pdl() const { return static_cast<u16>(arch) >= 900; }

  /// Layout of the weights for one expert; offsets of further experts follow from MatrixLayout with any `experts`.
  W4MOE_HD constexpr WeightLayout weights() const {
    return WeightLayout{Shape{hidden, intermediate, 1, 1, 1}, format, is_gated(activation), false};
  }
  W4MOE_HD constexpr MatrixLayout matrix() const { return kind == KernelKind::fc2 || kind == KernelKind::fc2_direct ? weights().fc2() : weights().fc1(); }

  W4MOE_HD constexpr bool is_wgmma() const { return family == Family::wgmma; }

  W4MOE_HD constexpr i64 tile_strips() const { return is_wgmma() ? wgmma.tile_strips() : tile.tile_strips(); }
  W4MOE_HD constexpr i64 tile_rows() const { return tile_strips() * kStripRows; }

  /// Routes a block holds at most.
  W4MOE_HD constexpr i32 block_rows() const { return is_wgmma() ? wgmma.max_width() : tile.block_rows; }

  /// Tiles along the packed rows of one block of routes.
  W4MOE_HD constexpr i64 row_tiles() const { return ceil_div(matrix().strips(), tile_strips()); }
  /// Strips that the last row tile holds: tile_strips() where the rows have no tail.
  W4MOE_HD constexpr i64 last_tile_strips() const { return matrix().strips() - (row_tiles() - 1) * tile_strips(); }

  W4MOE_HD constexpr i32 min_ctas_per_sm() const { return is_gemm() && !is_wgmma() ? tile.min_ctas_per_sm : 1; }

  W4MOE_HD constexpr i32 threads() const {
    switch (kind) {
      case KernelKind::route:
      case KernelKind::route_count:
      case KernelKind::route_place: return 1024;
      case KernelKind::fc1:
      case KernelKind::fc2:
      case KernelKind::fc1_direct:
      case KernelKind::fc2_direct: return is_wgmma() ? wgmma.threads() : tile.threads();
      default: return 256;
    }
  }
  /// Dynamic shared memory of FC1 and FC2; that of the other kernels depends on run-time sizes (route_shared_bytes, direct_shared_bytes).
  W4MOE_HD constexpr i64 shared_bytes() const {
    if (kind != KernelKind::fc1 && kind != KernelKind::fc2) return 0;
    return is_wgmma() ? wgmma.shared_bytes(UnitLayout{format}.unit_bytes()) : tile.shared_bytes();
  }
};

/// Work items of a GEMM kernel for at most `blocks` blocks of routes: item i is row tile i % row_tiles of block i / row_tiles, so
/// that neighbours share a block's tokens in L2.
W4MOE_HD constexpr i64 gemm_items(const Variant& v, i64 blocks) { return v.row_tiles() * blocks; }

/// CTAs of that kernel on a device of `sms` multiprocessors: one per item in the portable family; the wgmma family is
/// persistent, CTA x takes items x, x + grid, ...
W4MOE_HD constexpr i64 gemm_grid_x(const Variant& v, i64 blocks, i64 sms) {
  return v.is_wgmma() ? min_of(gemm_items(v, blocks), sms) : gemm_items(v, blocks);
}

inline constexpr i64 kCombineThreads = 256;

/// Vectors of a token's row that the combine kernel sums, a thread each, and its CTAs.
W4MOE_HD constexpr i64 combine_vectors(i64 hidden) { return ceil_div(hidden, kRowVectorElems); }
W4MOE_HD constexpr i64 combine_grid_x(i64 hidden, i64 tokens) { return ceil_div(tokens * combine_vectors(hidden), kCombineThreads); }

/// Dynamic shared memory of a direct kernel (FC1 keeps the token, FC2 h of its `topk` routes), and FC2's CTAs: one per strip.
W4MOE_HD constexpr i64 direct_shared_bytes(const Variant& v, i64 topk) {
  return DirectTile{v.tile}.shared_bytes(v.matrix().padded_k(), v.kind == KernelKind::fc1_direct ? 1 : topk);
}
W4MOE_HD constexpr i64 direct_grid_x(const Variant& v) { return v.matrix().strips(); }

/// Dynamic shared memory of the routing kernels: a count and a first slot per expert, and two partial sums per warp.
W4MOE_HD constexpr i64 route_shared_bytes(i64 experts) { return (2 * experts + 2 * kLanes) * 4; }

/// Dynamic shared memory of a launch of `v` for a layer of this shape.
W4MOE_HD constexpr i64 kernel_shared_bytes(const Variant& v, const Shape& shape) {
  switch (v.kind) {
    case KernelKind::route:
    case KernelKind::route_count:
    case KernelKind::route_place: return route_shared_bytes(shape.experts);
    case KernelKind::fc1_direct:
    case KernelKind::fc2_direct: return direct_shared_bytes(v, shape.topk);
    default: return v.shared_bytes();
  }
}

/// MXFP4 in fp16, wide exponents and INT4: the scale multiplies the fp32 partial sums of its group instead of the weight.
W4MOE_HD constexpr bool scales_on_accumulator(const QuantFormat& f, DType dtype) {
  return f.is_int4() || f.wide_exponent || (f.is_mxfp4() && dtype == DType::f16);
}

/// Whether the wgmma family serves a format: bf16, and scales that go on the weight exactly (INT4's would round: 4.1e-3 instead of
/// 2.9e-3 relative RMSE of a layer, beyond the numerics contract).
W4MOE_HD constexpr bool wgmma_serves(const QuantFormat& f, DType dtype) {
  return dtype == DType::bf16 && !scales_on_accumulator(f, dtype);
}

}  // namespace w4moe
