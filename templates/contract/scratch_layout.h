// Scratch of a launch sequence: one control region, then the payload. The only place where its bytes are computed.
#pragma once

#include "contract/route_layout.h"
#include "contract/weight_layout.h"

namespace w4moe {

inline constexpr i64 kScratchAlignBytes = 256;

/// Written once by init_scratch and left as found by every kernel.
struct ControlRegion {
  u64 magic = 0;
  u32 version = 0;
  u32 status = 0;         ///< 0, or a sticky KernelStatus that status(binding) reports
  u32 status_detail = 0;
};

inline constexpr u64 kControlMagic = 0x6c72746e6f433457ull;  // "W4Contrl"
inline constexpr u32 kControlVersion = 1;
inline constexpr i64 kControlBytes = 65536;

enum class KernelStatus : u32 {
  ok = 0,
  control_corrupt = 1,  ///< the control region did not hold what init_scratch wrote
};

enum class Region : u8 { control, counts, chunk_counts, sorted_pairs, blocks, h_amax, h, route_rows };
inline constexpr i32 kRegionCount = 8;

/// Results of the routing kernel that later kernels read first.
struct RouteCounts {
  i32 blocks = 0;
  i32 valid_pairs = 0;
  i32 reserved[2] = {};
};

struct RegionSpan {
  i64 offset_bytes = 0;
  i64 bytes = 0;
};

/// Scratch of one launch sequence with at most `shape.max_tokens` tokens and at most `max_blocks` blocks of routes (the largest
/// RouteLayout::max_blocks() over the token buckets that the plan can pick).
///  chunk_counts: [chunks][E] i32   parallel routing only
///  h:          [R][I padded to 8]  activated intermediates in expert-sorted order; bf16, or fp32 where activations are fp16
///  h_amax:     [R] u32             fp16 only: bits of the largest |h| of the row, from which FC2 scales the row
///  route_rows: [R][H]              weighted FC2 rows by pair; bf16, or fp32 where activations are fp16 (no overflow in between)
struct ScratchLayout {
  Shape shape;
  DType dtype = DType::bf16;
  i64 max_blocks = 0;
  bool routed = true;   ///< false: only direct launches, which keep nothing but h


  W4MOE_HD constexpr DType h_dtype() const { return dtype == DType::f16 ? DType::f32 : dtype; }
  W4MOE_HD constexpr i64 h_stride_elems() const { return align_up(shape.intermediate, kRowVectorElems); }
  W4MOE_HD constexpr i64 route_row_stride_elems() const { return align_up(shape.hidden, kRowVectorElems); }

  W4MOE_HD constexpr i64 h_row_bytes() const { return h_stride_elems() * dtype_bytes(h_dtype()); }
  W4MOE_HD constexpr i64 route_row_bytes() const { return route_row_stride_elems() * dtype_bytes(h_dtype()); }

  W4MOE_HD constexpr i64 bytes_of(Region r) const {
    const i64 rows = shape.pairs(shape.max_tokens);
    if (!routed && r != Region::control && r != Region::h) return 0;
    switch (r) {
      case Region::control: return kControlBytes;
      case Region::counts: return static_cast<i64>(sizeof(RouteCounts));
      case Region::chunk_counts: return RouteLayout{shape.max_tokens, shape.topk, shape.experts, 8}.chunk_table_bytes();
      case Region::sorted_pairs: return rows * static_cast<i64>(sizeof(i32));
      case Region::blocks: return max_blocks * static_cast<i64>(sizeof(RouteBlock));
      case Region::h_amax: return dtype == DType::f16 ? rows * 4 : 0;
      case Region::h: return rows * h_row_bytes();
      case Region::route_rows: return rows * route_row_bytes();
    }
    return 0;
  }

  /// Regions follow one another in the order of the enumeration, each aligned to kScratchAlignBytes.
  W4MOE_HD constexpr RegionSpan span(Region wanted) const {
    i64 offset = 0;
    for (i32 i = 0; i < kRegionCount; ++i) {
      const Region r = static_cast<Region>(i);
      if (r == wanted) return RegionSpan{offset, bytes_of(r)};
      offset = align_up(offset + bytes_of(r), kScratchAlignBytes);
    }
    return RegionSpan{};
  }

  /// End of the last region that holds anything: the highest byte a run with max_tokens tokens can touch.
  W4MOE_HD constexpr i64 touched_bytes() const {
    i64 end = 0;
    for (i32 i = 0; i < kRegionCount; ++i) {
      const RegionSpan s = span(static_cast<Region>(i));
      if (s.bytes > 0) end = s.offset_bytes + s.bytes;
    }
    return end;
  }
  W4MOE_HD constexpr i64 total_bytes() const { return align_up(touched_bytes(), kScratchAlignBytes); }
};

}  // namespace w4moe
