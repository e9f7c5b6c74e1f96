// The quantisation format of a layer's weights: code type, group, scales.
#pragma once

#include "contract/types.h"

namespace w4moe {

/// Group size that stands for "one group spans the whole row".
inline constexpr i64 kWholeRow = 0;

struct QuantFormat {
  CodeType code = CodeType::e2m1;
  ScaleType scale = ScaleType::e8m0;
  i64 group_size = 32;         ///< elements along K under one scale; kWholeRow for one per row
  bool has_zero_point = false; ///< INT4 only: a 4-bit zero point per group instead of the constant 8
  bool wide_exponent = false;  ///< MXFP4 only: full scale bytes, applied on the accumulator (spread over 127 exponents)

  constexpr bool operator==(const QuantFormat&) const = default;

  W4MOE_HD constexpr bool is_mxfp4() const { return code == CodeType::e2m1 && scale == ScaleType::e8m0; }
  W4MOE_HD constexpr bool is_nvfp4() const { return code == CodeType::e2m1 && scale == ScaleType::e4m3; }
  W4MOE_HD constexpr bool is_int4() const { return code == CodeType::u4; }

  /// Groups along a row of k elements; a short last group counts (compact tail).
  W4MOE_HD constexpr i64 groups(i64 k) const { return group_size == kWholeRow ? 1 : ceil_div(k, group_size); }

  /// Group that element k of a row lies in.
  W4MOE_HD constexpr i64 group_of(i64 k) const { return group_size == kWholeRow ? 0 : k / group_size; }

  /// Bytes of one stored scale in a checkpoint.
  W4MOE_HD constexpr i64 scale_bytes() const {
    return scale == ScaleType::e8m0 || scale == ScaleType::e4m3 ? 1 : 2;
  }

  /// True where whole groups fill a row of k elements, so that k needs no flag to be accepted.
  W4MOE_HD constexpr bool divides(i64 k) const { return group_size == kWholeRow || k % group_size == 0; }
};

inline constexpr QuantFormat kMxfp4{CodeType::e2m1, ScaleType::e8m0, 32, false, false};
inline constexpr QuantFormat kMxfp4Wide{CodeType::e2m1, ScaleType::e8m0, 32, false, true};
inline constexpr QuantFormat kNvfp4{CodeType::e2m1, ScaleType::e4m3, 16, false, false};

/// Zero point of symmetric INT4: value = code - 8.
inline constexpr u32 kInt4SymmetricZero = 8;

}  // namespace w4moe
