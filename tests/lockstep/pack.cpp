#include "tests/lockstep/pack.hpp"

#include "contract/code_order.h"
#include "contract/scale_order.h"
#include "tests/lockstep/layer.hpp"

namespace w4moe::lockstep {
namespace {

/// One packed row's place in the logical matrices; matrix null: padding.
struct RowSource {
  const Matrix* matrix = nullptr;
  i64 row = 0;
};

struct UnitSource {
  const QuantFormat& format;
  i64 expert;
  i64 k0;                    // first column of the unit
  const RowSource (&rows)[16];

  bool real(i64 row, i64 k) const { return rows[row].matrix != nullptr && k < rows[row].matrix->k; }
  i64 group_at(i64 row, i64 group) const {
    const Matrix& m = *rows[row].matrix;
    return (expert * m.rows + rows[row].row) * format.groups(m.k) + group;
  }
  u32 code(i64 row, i64 step, i64 column) const {
    const i64 k = k0 + step * kStepK + column;
    if (!real(row, k)) return format.is_int4() ? zero(row, k) : 0u;
    if (format.is_nvfp4() && scale(row, k, 0) == 0) return 0u;  // a scale of zero has no encoding of its own
    const Matrix& m = *rows[row].matrix;
    return m.codes[static_cast<std::size_t>((expert * m.rows + rows[row].row) * m.k + k)];
  }
  u32 scale(i64 row, i64 k, u32 padding) const {
    if (!real(row, k)) return padding;
    return rows[row].matrix->scales[static_cast<std::size_t>(group_at(row, format.group_of(k)))];
  }
  u32 zero(i64 row, i64 k) const {
    if (!real(row, k)) return kInt4SymmetricZero;
    return rows[row].matrix->zeros[static_cast<std::size_t>(group_at(row, format.group_of(k)))];
  }
};

void put_word(u8* to, u32 word) {
  for (int i = 0; i < 4; ++i) to[i] = static_cast<u8>(word >> (8 * i));
}

void pack_codes(const UnitSource& u, u8* unit) {
  for (i64 lane = 0; lane < kLanes; ++lane) {
    const i64 g = lane / 4;
    const i64 t = lane % 4;
    u32 registers[4][4];
    for (i64 step = 0; step < kUnitSteps; ++step) {
      for (i64 r = 0; r < 4; ++r) {
        const i64 row = g + (r % 2) * 8;
        const i64 column = 2 * t + (r / 2) * 8;
        u32 lo = u.code(row, step, column);
        u32 hi = u.code(row, step, column + 1);
        if (!u.format.is_int4()) {
          lo = fp4_spread(lo);
          hi = fp4_spread(hi);
        }
        registers[step][r] = lo | (hi << 16);
      }
    }
    u32 words[4];
    for (i64 step = 0; step < 4; ++step) {
      if (u.format.is_int4()) {
        words[step] = int4_pack(registers[step]);
      } else if (step % 2 == 0) {
        const u32 pair[8] = {registers[step][0],     registers[step][1],     registers[step][2],     registers[step][3],
                             registers[step + 1][0], registers[step + 1][1], registers[step + 1][2], registers[step + 1][3]};
        fp4_pack_pair(pair, words[step], words[step + 1]);
      }
    }
    for (i64 w = 0; w < 4; ++w) put_word(unit + lane * kLaneCodeBytes + 4 * w, words[w]);
  }
}

void pack_scales(const UnitSource& u, const UnitLayout& layout, u8* unit) {
  for (i64 g = 0; g < kRowPairs; ++g) {
    u8* to = unit + layout.pair_scale_offset_bytes(g);
    const i64 k = u.k0;
    if (u.format.is_mxfp4()) {
      const u32 s[4] = {u.scale(g, k, 127), u.scale(g + 8, k, 127), u.scale(g, k + 32, 127), u.scale(g + 8, k + 32, 127)};
      put_word(to, u.format.wide_exponent ? mx_wide_word(s[0], s[1], s[2], s[3])
                                          : mx_scale_word(s[0] - kMxDefaultBase, s[1] - kMxDefaultBase, s[2] - kMxDefaultBase,
                                                          s[3] - kMxDefaultBase));
    } else if (u.format.is_nvfp4()) {
      for (i64 j = 0; j < 2; ++j) {
        u32 e[4];
        for (i64 i = 0; i < 4; ++i) e[i] = nv_encode_e4m3(u.scale(g + 8 * (i % 2), k + (2 * j + i / 2) * 16, 0x38));
        put_word(to + 4 * j, nv_scale_word(e[0], e[1], e[2], e[3]));
      }
    } else {
      for (i64 group = 0; group < layout.groups(); ++group) {
        put_word(to + 4 * group, u.scale(g, k + 32 * group, 0) | (u.scale(g + 8, k + 32 * group, 0) << 16));
      }
      for (i64 i = 0; i < layout.zero_bytes_per_pair(); ++i) {
        unit[layout.pair_zero_offset_bytes(g) + i] = static_cast<u8>(u.zero(g + 8 * (i % 2), k + 32 * (i / 2)));
      }
    }
  }
}

template <class RowOf>
Buffer pack_matrix(const MatrixLayout& layout, const RowOf& row_of) {
  Buffer packed(layout.total_bytes(), 0);
  for (i64 e = 0; e < layout.experts; ++e) {
    for (i64 strip = 0; strip < layout.strips(); ++strip) {
      RowSource rows[16];
      for (i64 r = 0; r < 16; ++r) rows[r] = row_of(strip * kStripRows + r);
      for (i64 unit = 0; unit < layout.k_units(); ++unit) {
        const UnitSource source{layout.format, e, unit * kUnitK, rows};
        u8* to = packed.data() + layout.unit_offset_bytes(e, strip, unit);
        pack_codes(source, to);
        pack_scales(source, layout.unit(), to);
      }
    }
  }
  return packed;
}

}  // namespace

void pack_layer(Layer& l) {
  const MatrixLayout fc1 = l.layout.fc1();
  const MatrixLayout fc2 = l.layout.fc2();
  const bool gated = l.layout.gated;
  const auto fc1_source = [&](i64 packed_row) {
    const Fc1Row row = fc1_row(gated, packed_row);
    if (row.feature >= l.c.intermediate) return RowSource{};
    return RowSource{gated && !row.is_up ? &l.gate : &l.up, row.feature};
  };
  const auto fc2_source = [&](i64 row) { return row < l.c.hidden ? RowSource{&l.down, row} : RowSource{}; };
  l.packed_fc1 = pack_matrix(fc1, fc1_source);
  l.packed_fc2 = pack_matrix(fc2, fc2_source);

  l.globals = Buffer(l.layout.globals_bytes());
  const float factor = l.c.format.is_nvfp4() ? kNvGlobalFactor : 1.0f;
  for (i64 e = 0; e < l.c.experts; ++e) l.globals.as<ExpertGlobals>()[e] = ExpertGlobals{factor, factor, factor, 0.0f};
  if (!l.c.has_bias) return;
  l.fc1_bias = Buffer(l.layout.fc1_bias_bytes(), 0);
  l.fc2_bias = Buffer(l.layout.fc2_bias_bytes(), 0);
  for (i64 e = 0; e < l.c.experts; ++e) {
    for (i64 row = 0; row < fc1.padded_rows(); ++row) {
      const RowSource s = fc1_source(row);
      if (s.matrix != nullptr) l.fc1_bias.as<float>()[e * l.layout.fc1_bias_stride_elems() + row] = s.matrix->bias[static_cast<std::size_t>(e * s.matrix->rows + s.row)];
    }
    for (i64 row = 0; row < l.c.hidden; ++row) {
      l.fc2_bias.as<float>()[e * l.layout.fc2_bias_stride_elems() + row] = l.down.bias[static_cast<std::size_t>(e * l.c.hidden + row)];
    }
  }
}

}  // namespace w4moe::lockstep
