// The packed weights of one layer: one allocation, one layout for every kernel family.
//
//   header | FC1 units of all experts | FC2 units of all experts | global factors | FC1 biases | FC2 biases
//
// A unit is 16 rows x 64 K: 512 bytes of codes (lane l owns bytes 16 l .. 16 l + 15), the scales, the zero points. A tile of any
// height is a set of 16-row strips. Eight strips (128 rows) form a group, whose units lie K-major: the units of all its strips
// for one K, then for the next; so a run along K of a whole group is one contiguous copy (bulk copies cost the same whatever
// their size), while a warp that reads one strip finds its units at a fixed stride. The last group of a matrix holds the strips
// that are left. K and rows are padded to whole units with codes of value zero.
#pragma once

#include "contract/scale_order.h"
#include "contract/shape.h"

namespace w4moe {

inline constexpr i64 kStripRows = 16;
inline constexpr i64 kUnitK = 64;
inline constexpr i64 kGroupStrips = 8;                ///< strips whose units are interleaved along K
inline constexpr i64 kStepK = 16;                     ///< K of one mma
inline constexpr i64 kUnitSteps = kUnitK / kStepK;
inline constexpr i64 kUnitCodeBytes = kStripRows * kUnitK / 2;
inline constexpr i64 kLanes = 32;
inline constexpr i64 kLaneCodeBytes = kUnitCodeBytes / kLanes;
inline constexpr i64 kRowPairs = kStripRows / 2;      ///< lane quads: rows g and g + 8 share a quad
inline constexpr i64 kRegionAlignBytes = 256;

/// Bytes inside one unit.
struct UnitLayout {
  QuantFormat format;

  /// Scale groups that the 64 K of a unit touch (each stored; a group wider than a unit is stored in every unit).
  W4MOE_HD constexpr i64 groups() const {
    return format.group_size == kWholeRow || format.group_size >= kUnitK ? 1 : kUnitK / format.group_size;
  }
  W4MOE_HD constexpr i64 scale_offset_bytes() const { return kUnitCodeBytes; }
  /// Bytes of the scales of one row pair: adjacent, so that a lane reads them with one load.
  W4MOE_HD constexpr i64 scale_bytes_per_pair() const { return groups() * 2 * format.scale_bytes(); }
  W4MOE_HD constexpr i64 scale_bytes() const { return kRowPairs * scale_bytes_per_pair(); }
  W4MOE_HD constexpr i64 pair_scale_offset_bytes(i64 pair) const {
    return scale_offset_bytes() + pair * scale_bytes_per_pair();
  }
  W4MOE_HD constexpr i64 zero_offset_bytes() const { return scale_offset_bytes() + scale_bytes(); }
  W4MOE_HD constexpr i64 zero_bytes_per_pair() const { return format.has_zero_point ? groups() * 2 : 0; }
  W4MOE_HD constexpr i64 pair_zero_offset_bytes(i64 pair) const { return zero_offset_bytes() + pair * zero_bytes_per_pair(); }
  W4MOE_HD constexpr i64 zero_bytes() const { return kRowPairs * zero_bytes_per_pair(); }
  W4MOE_HD constexpr i64 unit_bytes() const { return align_up(zero_offset_bytes() + zero_bytes(), 16); }
};

/// One projection: `rows` packed rows by `k` columns, for each of `experts`.
struct MatrixLayout {
  QuantFormat format;
  i64 rows = 0;     ///< packed rows, before padding to strips
  i64 k = 0;        ///< columns, before padding to units
  i64 experts = 0;

  W4MOE_HD constexpr UnitLayout unit() const { return UnitLayout{format}; }
  W4MOE_HD constexpr i64 strips() const { return ceil_div(rows, kStripRows); }
  W4MOE_HD constexpr i64 k_units() const { return ceil_div(k, kUnitK); }
  W4MOE_HD constexpr i64 padded_rows() const { return strips() * kStripRows; }
  W4MOE_HD constexpr i64 padded_k() const { return k_units() * kUnitK; }
  /// Columns of the last unit that are real: kUnitK where k has no tail.
  W4MOE_HD constexpr i64 last_unit_k() const { return k - (k_units() - 1) * kUnitK; }
  /// Strips of the group that holds `strip`: kGroupStrips, or what is left in the last group.
  W4MOE_HD constexpr i64 group_strips(i64 strip) const {
    return min_of(kGroupStrips, strips() - strip / kGroupStrips * kGroupStrips);
  }
  /// Distance between the units of one strip along K.
  W4MOE_HD constexpr i64 unit_stride_bytes(i64 strip) const { return group_strips(strip) * unit().unit_bytes(); }
  /// True where every strip has the same unit stride.
  W4MOE_HD constexpr bool groups_are_whole() const { return strips() % kGroupStrips == 0 || strips() < kGroupStrips; }
  W4MOE_HD constexpr i64 expert_stride_bytes() const { return strips() * k_units() * unit().unit_bytes(); }
  W4MOE_HD constexpr i64 total_bytes() const { return experts * expert_stride_bytes(); }
  W4MOE_HD constexpr i64 unit_offset_bytes(i64 expert, i64 strip, i64 unit_k) const {
    const i64 group_first = strip / kGroupStrips * kGroupStrips;
    return expert * expert_stride_bytes() + group_first * k_units() * unit().unit_bytes() + unit_k * unit_stride_bytes(strip) +
           strip % kGroupStrips * unit().unit_bytes();
  }
};

/// Which checkpoint row a packed FC1 row holds. Gated layers pair gate and up in one strip: rows 0..7 are the gate rows of eight
/// features, rows 8..15 their up rows, so that one thread owns both.
struct Fc1Row {
  i64 feature = 0;   ///< 0..I-1; >= I: padding
  bool is_up = false;
};

W4MOE_HD constexpr Fc1Row fc1_row(bool gated, i64 packed_row) {
  if (!gated) return Fc1Row{packed_row, false};
  const i64 strip = packed_row / kStripRows;
  const i64 row = packed_row % kStripRows;
  return Fc1Row{strip * kRowPairs + row % kRowPairs, row >= kRowPairs};
}

/// Packed FC1 rows of I features, a whole number of strips.
W4MOE_HD constexpr i64 fc1_packed_rows(bool gated, i64 intermediate) {
  return gated ? 2 * align_up(intermediate, kRowPairs) : align_up(intermediate, kStripRows);
}

/// Checkpoint rows of I features.
W4MOE_HD constexpr i64 fc1_rows(bool gated, i64 intermediate) { return gated ? 2 * intermediate : intermediate; }

/// Bytes that a checkpoint holds for `rows` rows of k columns: codes, scales and 4-bit zero points, without any padding.
W4MOE_HD constexpr i64 checkpoint_bytes(const QuantFormat& format, i64 rows, i64 k) {
  const i64 zero_bytes = format.has_zero_point ? ceil_div(format.groups(k), 2) : 0;
  return rows * (ceil_div(k, 2) + format.groups(k) * format.scale_bytes() + zero_bytes);
}

/// Features that one strip of FC1 yields.
W4MOE_HD constexpr i64 fc1_strip_features(bool gated) { return gated ? kRowPairs : kStripRows; }

/// fp32 factors applied to the accumulators of one expert: they hold the checkpoint's global scales and what the packed
/// encoding leaves out (2^(base-2) for MXFP4, 2^7 for NVFP4).
struct ExpertGlobals {
  float gate = 1.0f;
  float up = 1.0f;
  float down = 1.0f;
  float reserved = 0.0f;
};

/// The whole allocation. Offsets are from its start, which must be aligned to kRegionAlignBytes.
struct WeightLayout {
  Shape shape;
  QuantFormat format;
  bool gated = true;
  bool has_bias = false;

  W4MOE_HD constexpr MatrixLayout fc1() const {
    return MatrixLayout{format, fc1_packed_rows(gated, shape.intermediate), shape.hidden, shape.experts};
  }
  W4MOE_HD constexpr MatrixLayout fc2() const { return MatrixLayout{format, shape.hidden, shape.intermediate, shape.experts}; }

  /// What the checkpoint holds for the two projections: the packed bytes beyond these are padding.
  W4MOE_HD constexpr i64 fc1_checkpoint_bytes() const {
    return shape.experts * checkpoint_bytes(format, fc1_rows(gated, shape.intermediate), shape.hidden);
  }
  W4MOE_HD constexpr i64 fc2_checkpoint_bytes() const {
    return shape.experts * checkpoint_bytes(format, shape.hidden, shape.intermediate);
  }

  W4MOE_HD constexpr i64 header_bytes() const { return kRegionAlignBytes; }
  W4MOE_HD constexpr i64 fc1_offset_bytes() const { return header_bytes(); }
  W4MOE_HD constexpr i64 fc2_offset_bytes() const { return align_up(fc1_offset_bytes() + fc1().total_bytes(), kRegionAlignBytes); }
  W4MOE_HD constexpr i64 globals_offset_bytes() const {
    return align_up(fc2_offset_bytes() + fc2().total_bytes(), kRegionAlignBytes);
  }
  W4MOE_HD constexpr i64 globals_bytes() const { return shape.experts * static_cast<i64>(sizeof(ExpertGlobals)); }

  /// FC1 biases: fp32, [E][packed rows], in packed-row order, zero in padding.
  W4MOE_HD constexpr i64 fc1_bias_offset_bytes() const {
    return align_up(globals_offset_bytes() + globals_bytes(), kRegionAlignBytes);
  }
  W4MOE_HD constexpr i64 fc1_bias_stride_elems() const { return fc1().padded_rows(); }
  W4MOE_HD constexpr i64 fc1_bias_bytes() const { return has_bias ? shape.experts * fc1_bias_stride_elems() * 4 : 0; }

  /// FC2 biases: fp32, [E][padded H], zero in padding.
  W4MOE_HD constexpr i64 fc2_bias_offset_bytes() const { return align_up(fc1_bias_offset_bytes() + fc1_bias_bytes(), kRegionAlignBytes); }
  W4MOE_HD constexpr i64 fc2_bias_stride_elems() const { return fc2().padded_rows(); }
  W4MOE_HD constexpr i64 fc2_bias_bytes() const { return has_bias ? shape.experts * fc2_bias_stride_elems() * 4 : 0; }

  W4MOE_HD constexpr i64 total_bytes() const { return align_up(fc2_bias_offset_bytes() + fc2_bias_bytes(), kRegionAlignBytes); }
};

}  // namespace w4moe
