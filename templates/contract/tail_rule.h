// Tails, stated once: which elements of a tile are real, who zero-fills and who predicates.
//
//  - Weights are padded with zero-valued codes at pack time: no kernel predicates a weight load inside a matrix.
//  - Tokens (FC1) and h (FC2) are read in 16-byte vectors; vectors past K are zero-filled on their way to shared memory, and so
//    are rows past the block. A NaN in the memory behind a row can thus never meet a zero weight.
//  - Stores are predicated: features >= I and hidden columns >= H are never written.
#pragma once

#include "contract/weight_layout.h"

namespace w4moe {

struct TailRule {
  i64 k = 0;     ///< logical columns
  i64 rows = 0;  ///< logical output rows (features or hidden columns)

  /// Bytes of the 16-byte vector starting at column `first` that are real, for elements of `elem_bytes`.
  W4MOE_HD constexpr i64 valid_vector_bytes(i64 first, i64 elem_bytes) const {
    const i64 left = (k - first) * elem_bytes;
    return left <= 0 ? 0 : min_of(left, 16);
  }
  /// Output rows from `first` on that exist, at most `count`.
  W4MOE_HD constexpr i64 valid_rows(i64 first, i64 count) const {
    const i64 left = rows - first;
    return left <= 0 ? 0 : min_of(left, count);
  }
  W4MOE_HD constexpr bool k_is_ragged() const { return k % kUnitK != 0; }
};

}  // namespace w4moe
