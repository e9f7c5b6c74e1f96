// What the exponents of a projection look like: the smallest and largest that matter, and whether a NaN scale is among them.
#pragma once

#include "contract/scale_order.h"
#include "packing/source_view.h"

namespace w4moe {

/// One per expert and projection. As it stands here it describes a projection without any block that counts.
struct ScanResult {
  u32 min_byte = 0xffffffffu;   ///< over blocks with a nonzero code; MXFP4 only
  u32 max_byte = 0;
  u32 first_nan = 0xffffffffu;  ///< smallest row * groups + group of a scale that is not a finite number
  u32 reserved = 0;
};

/// Order of the projections of an expert in an array of ScanResult.
enum class Projection : u8 { gate, up, down };
inline constexpr i64 kProjections = 3;

/// True for every stored scale that stands for no finite number.
W4MOE_HD constexpr bool scale_is_not_finite(ScaleType type, u32 bits) {
  switch (type) {
    case ScaleType::e8m0: return bits == kE8m0Nan;
    case ScaleType::e4m3: return (bits & 0x7fu) == 0x7fu;
    case ScaleType::bf16: return (bits & 0x7f80u) == 0x7f80u;
    case ScaleType::f16: return (bits & 0x7c00u) == 0x7c00u;
  }
  return true;
}

/// True where some code of the group is neither +0 nor -0.
W4MOE_HD constexpr bool block_has_value(const QuantFormat& format, const SourceView& view, i64 row, i64 group) {
  const i64 first = format.group_size == kWholeRow ? 0 : group * format.group_size;
  const i64 end = format.group_size == kWholeRow ? view.k : min_of(view.k, first + format.group_size);
  const SourceRow codes = source_code_row(view, row);
  for (i64 k = first; k < end; k += 2) {
    if ((source_code_pair(view, codes, k) & 0x77u) != 0) return true;
  }
  return false;
}

/// Folds one block into `result`.
W4MOE_HD constexpr void scan_block(const QuantFormat& format, const SourceView& view, i64 row, i64 group, ScanResult& result) {
  const u32 bits = source_scale(view, row, group);
  if (scale_is_not_finite(view.scale_type, bits)) {
    const u32 place = static_cast<u32>(row * format.groups(view.k) + group);
    if (place < result.first_nan) result.first_nan = place;
    return;
  }
  if (!format.is_mxfp4() || !block_has_value(format, view, row, group)) return;
  if (bits < result.min_byte) result.min_byte = bits;
  if (bits > result.max_byte) result.max_byte = bits;
}

/// The window of exponents of one projection in the narrow MXFP4 layout.
struct MxWindow {
  u32 base = kMxDefaultBase;
  bool fits = true;
};

/// Ordinary checkpoints (bytes 2..128) keep base 2 and thus a factor of 1; otherwise the least shift that holds every exponent.
W4MOE_HD constexpr MxWindow mx_window(const ScanResult& scan) {
  constexpr u32 kLast = kMxWindow - 1;
  if (scan.min_byte > scan.max_byte) return MxWindow{};
  if (scan.max_byte - scan.min_byte > kLast) return MxWindow{scan.min_byte, false};
  if (scan.max_byte > kMxDefaultBase + kLast) return MxWindow{scan.max_byte - kLast, true};
  return MxWindow{scan.min_byte < kMxDefaultBase ? scan.min_byte : kMxDefaultBase, true};
}

}  // namespace w4moe
