// Reading prepared weights back through the contract's inverse functions: for tests, inspection and comparison, not for speed.
#include <array>
#include <bit>
#include <cstring>

#include "contract/layout_id.h"
#include "generator/problem/errors.hpp"
#include "runtime/weights/operand.hpp"

namespace w4moe {
namespace {

u32 load_u32(const u8* from) {
  u32 v = 0;
  std::memcpy(&v, from, sizeof(v));
  return v;
}

/// The e4m3 byte of every encoding; zero never comes back, since the packer stores it as another scale with codes 0.
std::array<u16, 256> nv_decode_table() {
  std::array<u16, 256> table;
  table.fill(0xffff);
  for (u32 byte = 0x7e; byte >= 1; --byte) table[nv_encode_e4m3(byte)] = static_cast<u16>(byte);
  table[0] = 0;  // padding
  table[kNvNanByte] = 0x7f;
  return table;
}

u16 nv_decode(u32 bits) {
  static const std::array<u16, 256> kTable = nv_decode_table();
  return kTable[bits];
}

/// Scale of row pair half `half` in group `group` of a unit, in the checkpoint's encoding.
u16 unit_scale(const UnitLayout& layout, const u8* unit, i64 quad, i64 group, u32 half) {
  const QuantFormat& format = layout.format;
  const u8* const words = unit + layout.pair_scale_offset_bytes(quad);
  if (format.is_int4()) return static_cast<u16>(load_u32(words + 4 * group) >> (16 * half));
  if (format.is_nvfp4()) {
    const u32 pair = nv_scale_pair_f16(load_u32(words + 4 * (group / 2)), static_cast<u32>(group & 1));
    return nv_decode(((half == 0 ? pair : pair >> 16) >> 7) & 0xffu);
  }
  const u32 word = load_u32(words);
  if (format.wide_exponent) return static_cast<u16>(mx_wide_byte(word, static_cast<u32>(group), half));
  const u32 q = mx_scale_exponent(word, static_cast<u32>(group), half);
  return static_cast<u16>(q == kMxNanCode ? kE8m0Nan : q + kMxDefaultBase);
}

/// Codes of columns `column` and `column` + 1 of one half's row in a lane's words.
u32 lane_codes(const QuantFormat& format, const u8* words, i64 step, u32 reg) {
  if (format.is_int4()) return int4_unpack(load_u32(words + 4 * step), reg);
  u32 r[4];
  const u32 x = load_u32(words + 8 * (step / 2));
  const u32 y = load_u32(words + 8 * (step / 2) + 4);
  if ((step & 1) == 0) {
    fp4_unpack_even(x, y, r);
  } else {
    fp4_unpack_odd(x, y, r);
  }
  return fp4_gather(r[reg] & 0xffffu) | (fp4_gather(r[reg] >> 16) << 16);
}

void unpack_unit(const UnitLayout& layout, const u8* unit, i64 quad, u32 half, i64 first, i64 row, UnpackedMatrix& out) {
  const QuantFormat& format = layout.format;
  for (i64 i = 0; i < kUnitK; i += 2) {
    const i64 k = first + i;
    if (k >= out.k) return;
    const i64 in_step = i % kStepK;
    const u32 reg = half + (in_step >= 8 ? 2 : 0);
    const i64 lane = quad * 4 + (in_step % 8) / 2;
    const u32 codes = lane_codes(format, unit + lane * kLaneCodeBytes, i / kStepK, reg);
    out.codes[static_cast<std::size_t>(row * out.k + k)] = static_cast<u8>(codes & 15u);
    out.codes[static_cast<std::size_t>(row * out.k + k + 1)] = static_cast<u8>((codes >> 16) & 15u);
    if (layout.groups() == 1 ? i != 0 : i % format.group_size != 0) continue;  // the scale of this group is there already
    const i64 unit_group = layout.groups() == 1 ? 0 : i / format.group_size;
    const auto at = static_cast<std::size_t>(row * out.groups + format.group_of(k));
    out.scales[at] = unit_scale(layout, unit, quad, unit_group, half);
    if (format.has_zero_point) out.zeros[at] = unit[layout.pair_zero_offset_bytes(quad) + 2 * unit_group + half];
  }
}

}  // namespace

Status check_prepared(const Problem& problem, std::span<const std::byte> prepared) {
  if (Status s = validate(problem); !s) return s;
  const WeightLayout layout = weight_layout(problem);
  const WeightHeader expected = make_weight_header(layout);
  WeightHeader header;
  if (prepared.size() < sizeof(header)) {
    return Error{ErrorCode::corrupt, fmt::format("prepared weights of {} bytes have no header", prepared.size())};
  }
  std::memcpy(&header, prepared.data(), sizeof(header));
  if (header.magic != kWeightMagic) {
    return Error{ErrorCode::corrupt, fmt::format("prepared weights begin with {:#018x}, not with {:#018x}", header.magic, kWeightMagic)};
  }
  if (header.layout_version != kLayoutVersion) {
    return Error{ErrorCode::corrupt, fmt::format("prepared weights have layout version {}, this library reads {}; pack them again",
                                                 header.layout_version, kLayoutVersion)};
  }
  if (header.layout_id != expected.layout_id) {
    return Error{ErrorCode::corrupt,
                 fmt::format("prepared weights have layout {:#018x} (H {}, I {}, E {}, group {}), the problem has {:#018x} (H {}, I {}, "
                             "E {}, group {})",
                             header.layout_id, header.hidden, header.intermediate, header.experts, header.group_size,
                             expected.layout_id, expected.hidden, expected.intermediate, expected.experts, expected.group_size)};
  }
  if (header.total_bytes != expected.total_bytes || prepared.size() != expected.total_bytes) {
    return Error{ErrorCode::corrupt, fmt::format("prepared weights: {} bytes given, the header says {}, expected {}", prepared.size(),
                                                 header.total_bytes, expected.total_bytes)};
  }
  return {};
}

Result<UnpackedMatrix> unpack_on_cpu(const Problem& problem, std::span<const std::byte> prepared, Projection projection, i64 expert) {
  if (Status s = check_prepared(problem, prepared); !s) return s.error();
  if (expert < 0 || expert >= problem.shape.experts) {
    return invalid_argument("expert {}: out of range (accepted: 0..{})", expert, problem.shape.experts - 1);
  }
  const bool gated = is_gated(problem.activation);
  if (projection == Projection::gate && !gated) return invalid_argument("projection gate: the activation has none");

  const WeightLayout layout = weight_layout(problem);
  const bool is_down = projection == Projection::down;
  const MatrixLayout matrix = is_down ? layout.fc2() : layout.fc1();
  const u8* const base = reinterpret_cast<const u8*>(prepared.data());
  const u8* const units = base + (is_down ? layout.fc2_offset_bytes() : layout.fc1_offset_bytes());
  UnpackedMatrix out;
  out.rows = is_down ? problem.shape.hidden : problem.shape.intermediate;
  out.k = matrix.k;
  out.groups = problem.format.groups(matrix.k);
  out.codes.resize(static_cast<std::size_t>(out.rows * out.k));
  out.scales.resize(static_cast<std::size_t>(out.rows * out.groups));
  out.zeros.assign(out.scales.size(), static_cast<u8>(kInt4SymmetricZero));
  if (problem.has_bias) out.bias.resize(static_cast<std::size_t>(out.rows));
  const float* const bias = reinterpret_cast<const float*>(
      base + (is_down ? layout.fc2_bias_offset_bytes() : layout.fc1_bias_offset_bytes())) + expert * matrix.padded_rows();

  for (i64 packed = 0; packed < matrix.padded_rows(); ++packed) {
    const Fc1Row at = fc1_row(gated && !is_down, packed);
    if (at.feature >= out.rows || at.is_up != (gated && projection == Projection::up)) continue;
    const i64 in_strip = packed % kStripRows;
    for (i64 unit_k = 0; unit_k < matrix.k_units(); ++unit_k) {
      const u8* const unit = units + matrix.unit_offset_bytes(expert, packed / kStripRows, unit_k);
      unpack_unit(matrix.unit(), unit, in_strip % kRowPairs, in_strip >= kRowPairs ? 1 : 0, unit_k * kUnitK, at.feature, out);
    }
    if (problem.has_bias) out.bias[static_cast<std::size_t>(at.feature)] = bias[packed];
  }

  ExpertGlobals globals;
  std::memcpy(&globals, base + layout.globals_offset_bytes() + expert * static_cast<i64>(sizeof(globals)), sizeof(globals));
  out.global = is_down ? globals.down : projection == Projection::up ? globals.up : globals.gate;
  if (problem.format.is_nvfp4()) out.global /= kNvGlobalFactor;
  return out;
}

}  // namespace w4moe
