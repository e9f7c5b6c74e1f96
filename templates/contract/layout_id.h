// The identity of a packed layout: prepared weights carry it, kernels export it, binding compares the two.
#pragma once

#include "contract/weight_layout.h"

namespace w4moe {

/// Raised with every change of the packed bytes, also where no field below changes.
inline constexpr u32 kLayoutVersion = 1;

inline constexpr u64 kWeightMagic = 0x31454f4d34573457ull;  // "W4W4MOE1" read as little-endian bytes

/// First 64 bytes of prepared weights, little-endian.
struct WeightHeader {
  u64 magic = kWeightMagic;
  u64 layout_id = 0;
  u32 layout_version = kLayoutVersion;
  u32 hidden = 0;
  u32 intermediate = 0;
  u32 experts = 0;
  u32 group_size = 0;
  u8 code = 0;
  u8 scale = 0;
  u8 has_zero_point = 0;
  u8 wide_exponent = 0;
  u8 gated = 0;
  u8 has_bias = 0;
  u8 reserved[6] = {};
  u64 total_bytes = 0;
  u64 reserved_word = 0;
};
static_assert(sizeof(WeightHeader) == 64, "the header is 64 bytes on every platform");

/// Mixes one field into a 64-bit FNV-1a state, byte by byte.
W4MOE_HD constexpr u64 layout_hash_mix(u64 state, u64 field) {
  for (i32 i = 0; i < 8; ++i) {
    state = (state ^ ((field >> (8 * i)) & 0xffu)) * 0x100000001b3ull;
  }
  return state;
}

/// 64-bit id over every field that affects the packed bytes or their places.
W4MOE_HD constexpr u64 layout_id(const WeightLayout& w) {
  u64 h = 0xcbf29ce484222325ull;
  h = layout_hash_mix(h, kLayoutVersion);
  h = layout_hash_mix(h, static_cast<u64>(w.format.code));
  h = layout_hash_mix(h, static_cast<u64>(w.format.scale));
  h = layout_hash_mix(h, static_cast<u64>(w.format.group_size));
  h = layout_hash_mix(h, w.format.has_zero_point ? 1 : 0);
  h = layout_hash_mix(h, w.format.wide_exponent ? 1 : 0);
  h = layout_hash_mix(h, w.gated ? 1 : 0);
  h = layout_hash_mix(h, w.has_bias ? 1 : 0);
  h = layout_hash_mix(h, static_cast<u64>(w.shape.hidden));
  h = layout_hash_mix(h, static_cast<u64>(w.shape.intermediate));
  h = layout_hash_mix(h, static_cast<u64>(w.shape.experts));
  h = layout_hash_mix(h, static_cast<u64>(w.total_bytes()));
  return h;
}

/// The part of the id that kernels compile in: they do not depend on the number of experts or on biases.
W4MOE_HD constexpr u64 kernel_layout_id(const WeightLayout& w) {
  WeightLayout one = w;
  one.shape.experts = 1;
  one.has_bias = false;
  return layout_id(one);
}

W4MOE_HD constexpr WeightHeader make_weight_header(const WeightLayout& w) {
  WeightHeader h;
  h.layout_id = layout_id(w);
  h.hidden = static_cast<u32>(w.shape.hidden);
  h.intermediate = static_cast<u32>(w.shape.intermediate);
  h.experts = static_cast<u32>(w.shape.experts);
  h.group_size = static_cast<u32>(w.format.group_size);
  h.code = static_cast<u8>(w.format.code);
  h.scale = static_cast<u8>(w.format.scale);
  h.has_zero_point = w.format.has_zero_point ? 1 : 0;
  h.wide_exponent = w.format.wide_exponent ? 1 : 0;
  h.gated = w.gated ? 1 : 0;
  h.has_bias = w.has_bias ? 1 : 0;
  h.total_bytes = static_cast<u64>(w.total_bytes());
  return h;
}

}  // namespace w4moe
