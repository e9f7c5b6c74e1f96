// One projection (gate, up or down) as a checkpoint holds it, as plain data that host and kernel read with the same functions.
// Rows are features of the projection: a gate row of a fused tensor is reached through row_first and row_step, so nothing beyond
// this file knows whether gate and up were concatenated, interleaved or separate.
#pragma once

#include "contract/quant.h"

namespace w4moe {

/// Where the code of (row, k) lies. Zero is no layout: a descriptor that names none is refused.
enum class CodeOrder : u8 {
  unspecified,
  low_nibble_first,   ///< two codes a byte along K, low nibble = even k; also int32 words of 8 codes, lowest nibble first
  high_nibble_first,  ///< two codes a byte along K, high nibble = even k
  awq_words,          ///< int32 words of 8 rows for one k; their nibbles hold rows 0, 2, 4, 6, 1, 3, 5, 7
};

/// How a stored INT4 code stands for 0..15.
enum class CodeSign : u8 {
  unspecified,
  offset8,          ///< stored 0..15, value = code - 8 or code - zero point
  twos_complement,  ///< stored -8..7 in four bits; the code is that plus 8
};

/// Where the scale of (row, group) lies.
enum class ScaleOrder : u8 {
  unspecified,
  strided,         ///< row and group strides: row-major as well as transposed
  swizzled_128x4,  ///< tiles of 128 rows x 4 groups, 512 bytes each, one byte a scale
};

/// Where the zero point of (row, group) lies.
enum class ZeroOrder : u8 {
  unspecified,
  none,                              ///< the format has no zero points
  bytes,                             ///< one byte each, row and group strides
  nibbles_along_rows,                ///< int32 words of 8 rows, lowest nibble first
  awq_words,                         ///< int32 words of 8 rows, their nibbles hold rows 0, 2, 4, 6, 1, 3, 5, 7
  nibbles_along_groups,              ///< two groups a byte, low nibble = even group
  nibbles_along_groups_high_first,   ///< two groups a byte, high nibble = even group
};

struct SourceView {
  const u8* codes = nullptr;
  const u8* scales = nullptr;
  const u8* zeros = nullptr;
  i64 rows = 0;                        ///< features of this projection
  i64 k = 0;                           ///< columns
  i64 row_first = 0;                   ///< tensor row of feature 0
  i64 row_step = 1;                    ///< tensor rows from one feature to the next
  i64 code_row_stride_bytes = 0;       ///< from one tensor row to the next; awq_words: from eight rows to the next eight
  i64 code_word_stride_bytes = 4;      ///< from eight codes of K to the next eight; awq_words: from one k to the next
  i64 scale_row_stride_bytes = 0;      ///< strided only
  i64 scale_group_stride_bytes = 0;    ///< strided only
  i64 scale_tile_columns = 0;          ///< swizzled only: tiles of 4 groups side by side
  i64 zero_row_stride_bytes = 0;       ///< per row, or per 8 rows where words hold 8 rows
  i64 zero_group_stride_bytes = 0;     ///< per group, or per 2 groups for nibbles_along_groups
  i64 code_expert_stride_bytes = 0;    ///< from one expert to the next, where experts are stacked
  i64 scale_expert_stride_bytes = 0;
  i64 zero_expert_stride_bytes = 0;
  CodeOrder code_order = CodeOrder::unspecified;
  CodeSign code_sign = CodeSign::unspecified;
  ScaleOrder scale_order = ScaleOrder::unspecified;
  ZeroOrder zero_order = ZeroOrder::unspecified;
  ScaleType scale_type = ScaleType::e8m0;
  u8 zero_add = 0;                     ///< added to a stored zero point, modulo 16 (8 for signed storage, 1 for GPTQ's first format)
};

/// The same projection of an expert that lies `expert` strides further.
W4MOE_HD constexpr SourceView source_of_expert(SourceView view, i64 expert) {
  view.codes += expert * view.code_expert_stride_bytes;
  view.scales += expert * view.scale_expert_stride_bytes;
  if (view.zeros != nullptr) view.zeros += expert * view.zero_expert_stride_bytes;
  return view;
}

W4MOE_HD constexpr i64 source_tensor_row(const SourceView& view, i64 row) { return view.row_first + row * view.row_step; }

/// Nibble of a word of eight rows that holds a row, counted from the lowest, in AWQ's order.
W4MOE_HD constexpr i64 awq_nibble(i64 row) { return ((row & 7) >> 1) + (row & 1) * 4; }

/// Where the codes of one feature begin.
struct SourceRow {
  const u8* codes = nullptr;
  u32 shift = 0;  ///< awq_words: bits below the row's code in each byte
};

W4MOE_HD constexpr SourceRow source_code_row(const SourceView& view, i64 row) {
  const i64 at = source_tensor_row(view, row);
  if (view.code_order == CodeOrder::awq_words) {
    const i64 nibble = awq_nibble(at);
    return SourceRow{view.codes + (at >> 3) * view.code_row_stride_bytes + (nibble >> 1), static_cast<u32>(nibble & 1) * 4};
  }
  return SourceRow{view.codes + at * view.code_row_stride_bytes, 0};
}

/// Codes of columns k (even; bits 0..3) and k + 1 (bits 4..7) of a row, as 0..15 each.
W4MOE_HD constexpr u32 source_code_pair(const SourceView& view, const SourceRow& row, i64 k) {
  u32 pair = 0;
  if (view.code_order == CodeOrder::awq_words) {
    const u8* const at = row.codes + k * view.code_word_stride_bytes;
    pair = ((at[0] >> row.shift) & 15u) | (((at[view.code_word_stride_bytes] >> row.shift) & 15u) << 4);
  } else {
    pair = row.codes[(k >> 3) * view.code_word_stride_bytes + ((k & 7) >> 1)];
    if (view.code_order == CodeOrder::high_nibble_first) pair = (pair >> 4) | ((pair & 15u) << 4);
  }
  if (view.code_sign == CodeSign::twos_complement) pair ^= 0x88u;
  return pair;
}

W4MOE_HD constexpr u32 source_code(const SourceView& view, i64 row, i64 k) {
  return (source_code_pair(view, source_code_row(view, row), k & ~i64{1}) >> (4 * (k & 1))) & 15u;
}

/// Columns of a code tensor of k elements, for bytes of two codes and for int32 words of eight.
W4MOE_HD constexpr i64 code_byte_columns(i64 k) { return k / 2; }
W4MOE_HD constexpr i64 code_word_columns(i64 k) { return k / 8; }

/// Tiles of 4 groups side by side in a 128x4-swizzled scale tensor, and its size: rows padded to 128, groups to 4.
W4MOE_HD constexpr i64 swizzled_tile_columns(i64 groups) { return ceil_div(groups, 4); }
W4MOE_HD constexpr i64 swizzled_scale_bytes(i64 rows, i64 groups) { return ceil_div(rows, 128) * swizzled_tile_columns(groups) * 512; }

/// Rows of a tensor whose int32 words hold 8 rows, and columns of one whose bytes hold 2 groups.
W4MOE_HD constexpr i64 word_rows(i64 rows) { return ceil_div(rows, 8); }
W4MOE_HD constexpr i64 zero_byte_columns(i64 groups) { return ceil_div(groups, 2); }

/// Byte offset inside a 128x4-swizzled scale tensor with `tile_columns` tiles side by side.
W4MOE_HD constexpr i64 swizzled_scale_offset(i64 row, i64 column, i64 tile_columns) {
  const i64 tile = (row / 128) * tile_columns + column / 4;
  return tile * 512 + (row % 32) * 16 + ((row % 128) / 32) * 4 + column % 4;
}

/// Stored bits of the scale of a feature's group: 8 or 16 of them.
W4MOE_HD constexpr u32 source_scale(const SourceView& view, i64 row, i64 group) {
  const i64 tensor_row = source_tensor_row(view, row);
  const u8* at = view.scales;
  if (view.scale_order == ScaleOrder::swizzled_128x4) {
    at += swizzled_scale_offset(tensor_row, group, view.scale_tile_columns);
  } else {
    at += tensor_row * view.scale_row_stride_bytes + group * view.scale_group_stride_bytes;
  }
  if (view.scale_type == ScaleType::e8m0 || view.scale_type == ScaleType::e4m3) return at[0];
  return at[0] | (static_cast<u32>(at[1]) << 8);  // bytewise: a tensor inside a file has no alignment to rely on
}

/// Zero point of a feature's group, 0..15.
W4MOE_HD constexpr u32 source_zero(const SourceView& view, i64 row, i64 group) {
  const i64 tensor_row = source_tensor_row(view, row);
  i64 at = group * view.zero_group_stride_bytes;
  u32 shift = 0;
  switch (view.zero_order) {
    case ZeroOrder::bytes:
      at += tensor_row * view.zero_row_stride_bytes;
      break;
    case ZeroOrder::nibbles_along_rows:
    case ZeroOrder::awq_words: {
      const i64 nibble = view.zero_order == ZeroOrder::awq_words ? awq_nibble(tensor_row) : tensor_row & 7;
      at += (tensor_row >> 3) * view.zero_row_stride_bytes + (nibble >> 1);
      shift = static_cast<u32>(nibble & 1) * 4;
      break;
    }
    case ZeroOrder::nibbles_along_groups:
    case ZeroOrder::nibbles_along_groups_high_first:
      at = tensor_row * view.zero_row_stride_bytes + (group >> 1) * view.zero_group_stride_bytes;
      shift = (group & 1) == (view.zero_order == ZeroOrder::nibbles_along_groups_high_first ? 1 : 0) ? 0 : 4;
      break;
    default:
      return kInt4SymmetricZero;
  }
  return ((static_cast<u32>(view.zeros[at]) >> shift) + view.zero_add) & 15u;
}

}  // namespace w4moe
