// The shape of one MoE layer and the limits every stage checks against.
#pragma once

#include "contract/quant.h"

namespace w4moe {

/// Sizes of one layer as one rank holds it. All counts of elements.
struct Shape {
  i64 hidden = 0;        ///< H: width of tokens and outputs
  i64 intermediate = 0;  ///< I: features between FC1 and FC2, per rank
  i64 experts = 0;       ///< E: experts held
  i64 topk = 0;          ///< k: routes per token
  i64 max_tokens = 0;    ///< largest m of any run

  constexpr bool operator==(const Shape&) const = default;

  /// Routes of m tokens.
  W4MOE_HD constexpr i64 pairs(i64 tokens) const { return tokens * topk; }
};

inline constexpr i64 kMaxHidden = 65536;
inline constexpr i64 kMaxIntermediate = 262144;
inline constexpr i64 kMaxExperts = 4096;   // the routing kernel counts experts in shared memory
inline constexpr i64 kMaxTopk = 32;
inline constexpr i64 kMaxTokens = 16777216;

/// Every row of tokens, h and outputs is moved in 16-byte vectors: H and I are multiples of this many elements.
inline constexpr i64 kRowVectorElems = 8;

/// Where row `row` of strided rows begins.
W4MOE_HD constexpr i64 strided_row_offset_bytes(i64 row, i64 stride_elems, i64 elem_bytes) { return row * stride_elems * elem_bytes; }

/// Bytes from the first element to past the last one of `rows` >= 1 strided rows of `width_elems` elements.
W4MOE_HD constexpr i64 strided_bytes(i64 rows, i64 stride_elems, i64 width_elems, i64 elem_bytes) {
  return ((rows - 1) * stride_elems + width_elems) * elem_bytes;
}

}  // namespace w4moe
