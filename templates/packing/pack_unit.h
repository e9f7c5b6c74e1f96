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

/// Encoded scale of the group that column k lies in; zero for padding.
W4MOE_HD constexpr EncodedScale row_scale(const QuantFormat& format, const PackRow& row, i64 k) {
  if (row.feature >= row.view->rows || k >= row.view->k) return EncodedScale{};
  return encode_scale(format, source_scale(*row.view, row.feature, format.group_of(k)), row.mx_base);
}

/// Zero point of the group that column k lies in; padding has the one of symmetric codes.
W4MOE_HD constexpr u32 row_zero(const QuantFormat& format, const PackRow& row, i64 k) {
  if (!format.has_zero_point || row.feature >= row.view->rows) return kInt4SymmetricZero;
  if (k >= row.view->k && format.group_size != kWholeRow) return kInt4SymmetricZero;
  return source_zero(*row.view, row.feature, format.group_of(k));
}

/// Codes of columns k and k + 1 at bits 0..3 and 16..19, with everything folded in that the scale could not hold.
W4MOE_HD constexpr u32 row_code_pair(const QuantFormat& format, const PackRow& row, i64 k) {
  if (row.feature >= row.view->rows || k >= row.view->k) {
    return format.is_int4() ? row_zero(format, row, k) * 0x00010001u : 0;
  }
  const u32 pair = source_code_pair(*row.view, row.feature, k);
  const u32 codes = (pair & 15u) | ((pair & 0xf0u) << 12);
  if (format.is_int4()) return codes;
  const EncodedScale scale = row_scale(format, row, k);
  return scale.zero_codes ? 0 : codes ^ (scale.flip * 0x00010001u);
}

W4MOE_HD inline void store_u32(u8* to, u32 v) { *reinterpret_cast<u32*>(to) = v; }

/// Writes what lane `lane` owns of the unit at column unit_k * 64: its 16 bytes of codes and, for one lane of each quad, the
/// scales and zero points of the quad's rows. rows[0] is row g of the strip, rows[1] row g + 8, g = lane / 4.
W4MOE_HD inline void pack_unit_lane(const QuantFormat& format, const PackRow (&rows)[2], i64 unit_k, i64 lane, u8* unit) {
  const i64 first = unit_k * kUnitK;
  const i64 column = 2 * (lane % 4);
  u8* const words = unit + lane * kLaneCodeBytes;
  for (i32 pair = 0; pair < kUnitSteps / 2; ++pair) {
    u32 r[8];
    for (i32 i = 0; i < 8; ++i) {  // register i % 4 of step 2 * pair + i / 4
      const i64 k = first + (2 * pair + i / 4) * kStepK + column + ((i >> 1) & 1) * 8;
      const u32 codes = row_code_pair(format, rows[i & 1], k);
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
  if (lane % 4 != 0) return;

  const UnitLayout layout{format};
  u8* const scales = unit + layout.pair_scale_offset_bytes(lane / 4);
  if (format.is_int4()) {
    for (i64 group = 0; group < layout.groups(); ++group) {
      const i64 k = first + group * format.group_size;
      store_u32(scales + 4 * group, row_scale(format, rows[0], k).bits | (row_scale(format, rows[1], k).bits << 16));
      if (!format.has_zero_point) continue;
      u8* const zeros = unit + layout.pair_zero_offset_bytes(lane / 4) + 2 * group;
      zeros[0] = static_cast<u8>(row_zero(format, rows[0], k));
      zeros[1] = static_cast<u8>(row_zero(format, rows[1], k));
    }
    return;
  }
  const i64 words_per_pair = layout.scale_bytes_per_pair() / 4;
  for (i64 word = 0; word < words_per_pair; ++word) {
    const i64 k = first + 2 * word * format.group_size;
    const u32 a0 = row_scale(format, rows[0], k).bits;
    const u32 a8 = row_scale(format, rows[1], k).bits;
    const u32 b0 = row_scale(format, rows[0], k + format.group_size).bits;
    const u32 b8 = row_scale(format, rows[1], k + format.group_size).bits;
    store_u32(scales + 4 * word, format.is_nvfp4()     ? nv_scale_word(a0, a8, b0, b8)
                                 : format.wide_exponent ? mx_wide_word(a0, a8, b0, b8)
                                                        : mx_scale_word(a0, a8, b0, b8));
  }
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
