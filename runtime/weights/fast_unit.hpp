// Whole units on the CPU, a quad of lanes at a time. The bits are those of pack_unit_lane, from which the tables are made; a test packs
// with both. Partial units (the tail of K) go lane by lane.
#pragma once

#include <array>
#include <bit>
#include <cstring>

#include "packing/pack_unit.h"

namespace w4moe {

static_assert(std::endian::native == std::endian::little, "words of codes are read and written as they lie");

inline constexpr i64 kRowWords = kUnitK / 8;

/// 64 codes of a row: word j holds columns 8 j .. 8 j + 7 of the unit, lowest nibble first.
using RowWords = std::array<u32, kRowWords>;

/// table[i][byte]: the words x (low) and y (high) of a lane in which register i holds the byte's two codes and the others none. Packing moves
/// each bit to a place of its own, so what eight registers give is the OR of what each gives.
using LaneTables = std::array<std::array<u64, 256>, 8>;

constexpr LaneTables make_lane_tables(bool is_int4) {
  LaneTables tables{};
  for (u32 i = 0; i < 8; ++i) {
    for (u32 byte = 0; byte < 256; ++byte) {
      const u32 codes = (byte & 15u) | ((byte & 0xf0u) << 12);
      u32 r[8] = {};
      r[i] = is_int4 ? codes : fp4_spread(codes & 15u) | (fp4_spread(codes >> 16) << 16);
      u32 x = 0;
      u32 y = 0;
      if (is_int4) {
        x = int4_pack({r[0], r[1], r[2], r[3]});
        y = int4_pack({r[4], r[5], r[6], r[7]});
      } else {
        fp4_pack_pair(r, x, y);
      }
      tables[i][byte] = x | (static_cast<u64>(y) << 32);
    }
  }
  return tables;
}

inline const LaneTables& lane_tables(bool is_int4) {
  static const LaneTables kFp4 = make_lane_tables(false);
  static const LaneTables kInt4 = make_lane_tables(true);
  return is_int4 ? kInt4 : kFp4;
}

/// The stored codes of a row's whole unit, before what its scales ask of them.
inline void load_row_words(const SourceView& view, const SourceRow& row, i64 first_k, RowWords& words) {
  if (view.code_order == CodeOrder::awq_words) {
    for (i64 j = 0; j < kRowWords; ++j) {
      u32 word = 0;
      for (i64 pair = 0; pair < 4; ++pair) word |= source_code_pair(view, row, first_k + 8 * j + 2 * pair) << (8 * pair);
      words[static_cast<std::size_t>(j)] = word;
    }
    return;
  }
  const u8* at = row.codes + first_k / 8 * view.code_word_stride_bytes;
  for (u32& word : words) {
    std::memcpy(&word, at, sizeof(word));
    at += view.code_word_stride_bytes;
    if (view.code_order == CodeOrder::high_nibble_first) word = ((word >> 4) & 0x0f0f0f0fu) | ((word & 0x0f0f0f0fu) << 4);
    if (view.code_sign == CodeSign::twos_complement) word ^= 0x88888888u;
  }
}

/// The codes as they are packed.
inline void unit_row_words(const QuantFormat& format, const UnitRow& row, i64 first_k, RowWords& words) {
  if (row.row.codes == nullptr) {
    words.fill(format.is_int4() ? kInt4SymmetricZero * 0x11111111u : 0u);
    return;
  }
  load_row_words(*row.view, row.row, first_k, words);
  if (format.is_int4()) return;
  for (i64 j = 0; j < kRowWords; ++j) {
    const EncodedScale& scale = row.scales[8 * j / format.group_size];
    u32& word = words[static_cast<std::size_t>(j)];
    word = scale.zero_codes ? 0u : word ^ (scale.flip * 0x11111111u);
  }
}

/// What the four lanes of quad `quad` write of a unit whose 64 columns all exist.
inline void pack_unit_quad(const QuantFormat& format, const LaneTables& tables, const PackRow (&rows)[2], i64 unit_k, i64 quad, u8* unit) {
  UnitRow halves[2];
  RowWords words[2];
  for (i64 half = 0; half < 2; ++half) {
    read_unit_row(format, rows[half], unit_k, halves[half]);
    unit_row_words(format, halves[half], unit_k * kUnitK, words[half]);
  }
  u8* const to = unit + quad * 4 * kLaneCodeBytes;
  for (std::size_t pair = 0; pair < 2; ++pair) {
    const u32* const a = words[0].data() + 4 * pair;
    const u32* const b = words[1].data() + 4 * pair;
    for (u32 t = 0; t < 4; ++t) {
      const u32 shift = 8 * t;
      const auto byte = [shift](u32 word) { return (word >> shift) & 0xffu; };
      const u64 lane = tables[0][byte(a[0])] | tables[1][byte(b[0])] | tables[2][byte(a[1])] | tables[3][byte(b[1])] |
                       tables[4][byte(a[2])] | tables[5][byte(b[2])] | tables[6][byte(a[3])] | tables[7][byte(b[3])];
      std::memcpy(to + t * kLaneCodeBytes + 8 * pair, &lane, sizeof(lane));
    }
  }
  store_unit_scales(format, halves, quad, unit);
}

}  // namespace w4moe
