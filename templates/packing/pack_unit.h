// One lane's share of one packed unit. The CPU packer and the packing kernel run this very function, so their bytes are equal.
#pragma once

#include "contract/weight_layout.h"
#include "packing/scan_block.h"

namespace w4moe {

/// A row of a strip: the feature it holds and where to find it. Features past the end of the projection are padding.
struct PackRow {
  const SourceView* view = nullptr;
  i64 feature = 0;
  u32 mx_base = kMxDefaultBase;
};

/// A stored scale as the packed layout holds it, and what it asks of the codes of its block.
struct EncodedScale {
  u32 bits = 0;
  u32 flip = 0;           ///< sign of the scale, to be folded into FP4 codes
  bool zero_codes = false;
};

W4MOE_HD constexpr EncodedScale encode_scale(const QuantFormat& format, u32 bits, u32 mx_base) {
  if (format.is_int4()) return EncodedScale{bits, 0, false};
  if (format.is_nvfp4()) {
    const u32 magnitude = bits & 0x7fu;
    return EncodedScale{nv_encode_e4m3(bits), (bits >> 4) & 8u, magnitude == 0x7fu || magnitude == 0};
  }
  if (format.wide_exponent) return EncodedScale{bits, 0, bits == kE8m0Nan};
  if (bits == kE8m0Nan) return EncodedScale{kMxNanCode, 0, true};
  // Outside the window there are only blocks whose codes are all zero: any exponent will do.
  const bool inside = bits >= mx_base && bits - mx_base < kMxWindow;
  return EncodedScale{inside ? bits - mx_base : 0, 0, false};
}

/// What one row holds in one unit: the encoded scales and zero points of the groups that the unit touches.
struct UnitRow {
  const SourceView* view = nullptr;
  SourceRow row;                     ///< no pointer where the whole row is padding
  EncodedScale scales[kUnitSteps]{};
  u32 zeros[kUnitSteps]{};           ///< INT4; padding has the zero point of symmetric codes
};

W4MOE_HD constexpr void read_unit_row(const QuantFormat& format, const PackRow& row, i64 unit_k, UnitRow& out) {
  const UnitLayout layout{format};
  const bool exists = row.feature < row.view->rows;
  out.view = row.view;
  out.row = exists ? source_code_row(*row.view, row.feature) : SourceRow{};
  for (i64 g = 0; g < layout.groups(); ++g) {
    const i64 k = unit_k * kUnitK + g * format.group_size;
    out.scales[g] = EncodedScale{};
    out.zeros[g] = kInt4SymmetricZero;
    if (!exists || k >= row.view->k) continue;
    const i64 group = format.group_of(k);
    out.scales[g] = encode_scale(format, source_scale(*row.view, row.feature, group), row.mx_base);
    if (format.has_zero_point) out.zeros[g] = source_zero(*row.view, row.feature, group);
  }
}

/// Group inside the unit that k16 step `step` lies in.
W4MOE_HD constexpr i64 unit_group(const QuantFormat& format, i64 step) {
  return UnitLayout{format}.groups() == 1 ? 0 : step * kStepK / format.group_size;
}

/// Codes of columns k and k + 1 at bits 0..3 and 16..19, with everything folded in that the scale could not hold.
W4MOE_HD constexpr u32 row_code_pair(const QuantFormat& format, const UnitRow& row, i64 group, i64 k) {
  if (row.row.codes == nullptr || k >= row.view->k) return format.is_int4() ? row.zeros[group] * 0x00010001u : 0;
  const u32 pair = source_code_pair(*row.view, row.row, k);
  const u32 codes = (pair & 15u) | ((pair & 0xf0u) << 12);
  if (format.is_int4()) return codes;
  const EncodedScale& scale = row.scales[group];
  return scale.zero_codes ? 0 : codes ^ (scale.flip * 0x00010001u);
}

W4MOE_HD inline void store_u32(u8* to, u32 v) { *reinterpret_cast<u32*>(to) = v; }

/// Writes the scales and zero points of a quad's two rows.
W4MOE_HD inline void store_unit_scales(const QuantFormat& format, const UnitRow (&rows)[2], i64 quad, u8* unit) {
  const UnitLayout layout{format};
  u8* const scales = unit + layout.pair_scale_offset_bytes(quad);
  const EncodedScale* const low = rows[0].scales;
  const EncodedScale* const high = rows[1].scales;
  if (format.is_int4()) {
    u8* const zeros = unit + layout.pair_zero_offset_bytes(quad);
    for (i64 g = 0; g < layout.groups(); ++g) {
      store_u32(scales + 4 * g, low[g].bits | (high[g].bits << 16));
      if (!format.has_zero_point) continue;
      zeros[2 * g] = static_cast<u8>(rows[0].zeros[g]);
      zeros[2 * g + 1] = static_cast<u8>(rows[1].zeros[g]);
    }
  } else if (format.is_nvfp4()) {
    store_u32(scales, nv_scale_word(low[0].bits, high[0].bits, low[1].bits, high[1].bits));
    store_u32(scales + 4, nv_scale_word(low[2].bits, high[2].bits, low[3].bits, high[3].bits));
  } else {
    store_u32(scales, format.wide_exponent ? mx_wide_word(low[0].bits, high[0].bits, low[1].bits, high[1].bits)
                                           : mx_scale_word(low[0].bits, high[0].bits, low[1].bits, high[1].bits));
  }
}

/// Writes what lane `lane` owns of the unit at column unit_k * 64: its 16 bytes of codes and, for one lane of each quad, the
/// scales and zero points of the quad's rows. rows[0] is row g of the strip, rows[1] row g + 8, g = lane / 4.
W4MOE_HD inline void pack_unit_lane(const QuantFormat& format, const PackRow (&rows)[2], i64 unit_k, i64 lane, u8* unit) {
  UnitRow halves[2];
  read_unit_row(format, rows[0], unit_k, halves[0]);
  read_unit_row(format, rows[1], unit_k, halves[1]);
  u8* const words = unit + lane * kLaneCodeBytes;
  for (i64 pair = 0; pair < kUnitSteps / 2; ++pair) {
    u32 r[8] = {};
    for (i64 i = 0; i < 8; ++i) {  // register i % 4 of step 2 * pair + i / 4
      const i64 step = 2 * pair + i / 4;
      const i64 k = unit_k * kUnitK + step * kStepK + ((i >> 1) & 1) * 8 + 2 * (lane % 4);
      const u32 codes = row_code_pair(format, halves[i & 1], unit_group(format, step), k);
      r[i] = format.is_int4() ? codes : fp4_spread(codes & 15u) | (fp4_spread(codes >> 16) << 16);
    }
    u32 x = 0;
    u32 y = 0;
    if (format.is_int4()) {
      x = int4_pack({r[0], r[1], r[2], r[3]});
      y = int4_pack({r[4], r[5], r[6], r[7]});
    } else {
      fp4_pack_pair(r, x, y);
    }
    store_u32(words + 8 * pair, x);
    store_u32(words + 8 * pair + 4, y);
  }
  if (lane % 4 == 0) store_unit_scales(format, halves, lane / 4, unit);
}

/// The two rows of a quad in strip `strip` of a projection pair. For FC1 of a gated layer `low` is gate and `high` is up;
/// otherwise both are the one projection.
W4MOE_HD constexpr void strip_rows(bool gated_fc1, const SourceView& low, const SourceView& high, u32 base_low, u32 base_high,
                                   i64 strip, i64 quad, PackRow (&rows)[2]) {
  for (i64 half = 0; half < 2; ++half) {
    const Fc1Row at = fc1_row(gated_fc1, strip * kStripRows + half * kRowPairs + quad);
    rows[half] = at.is_up ? PackRow{&high, at.feature, base_high} : PackRow{&low, at.feature, base_low};
  }
}

}  // namespace w4moe
