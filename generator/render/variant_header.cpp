#include "generator/render/variant_header.hpp"

#include <fmt/format.h>

#include "w4moe/device.hpp"
#include "w4moe/problem.hpp"

namespace w4moe {
namespace {

std::string_view name_of(CodeType code) { return code == CodeType::e2m1 ? "e2m1" : "u4"; }

std::string_view name_of(ScaleType scale) {
  switch (scale) {
    case ScaleType::e8m0: return "e8m0";
    case ScaleType::e4m3: return "e4m3";
    case ScaleType::bf16: return "bf16";
    case ScaleType::f16: return "f16";
  }
  return "?";
}

std::string_view name_of(DType type) {
  switch (type) {
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    case DType::f32: return "f32";
  }
  return "?";
}

std::string_view name_of(Activation activation) {
  switch (activation) {
    case Activation::silu: return "silu";
    case Activation::swiglu_oai: return "swiglu_oai";
    case Activation::geglu_tanh: return "geglu_tanh";
    case Activation::geglu_erf: return "geglu_erf";
    case Activation::situ: return "situ";
    case Activation::relu2: return "relu2";
    case Activation::silu_ungated: return "silu_ungated";
    case Activation::gelu_ungated: return "gelu_ungated";
  }
  return "?";
}

// The structured bindings below name every field: a field added to the contract does not compile until it is rendered.

std::string format_text(const QuantFormat& format) {
  const auto& [code, scale, group_size, has_zero_point, wide_exponent] = format;
  return fmt::format(R"({{
        .code = CodeType::{},
        .scale = ScaleType::{},
        .group_size = {},
        .has_zero_point = {},
        .wide_exponent = {},
    }})",
                     name_of(code), name_of(scale), group_size, has_zero_point, wide_exponent);
}

std::string tile_text(const GemmTile& tile) {
  const auto& [block_rows, warps_rows, warps_k, strips_per_warp, units_per_warp, stages, min_ctas_per_sm] = tile;
  return fmt::format(R"({{
        .block_rows = {},
        .warps_rows = {},
        .warps_k = {},
        .strips_per_warp = {},
        .units_per_warp = {},
        .stages = {},
        .min_ctas_per_sm = {},
    }})",
                     block_rows, warps_rows, warps_k, strips_per_warp, units_per_warp, stages, min_ctas_per_sm);
}

std::string wgmma_text(const WgmmaTile& tile) {
  const auto& [widths, blocks_per_group, stage_units, stages, steps_per_group] = tile;
  return fmt::format(R"({{
        .widths = {{{}}},
        .blocks_per_group = {},
        .stage_units = {},
        .stages = {},
        .steps_per_group = {},
    }})",
                     fmt::join(widths, ", "), blocks_per_group, stage_units, stages, steps_per_group);
}

std::string variant_text(const Variant& variant, std::string_view description) {
  const auto& [kind, arch, hidden, intermediate, format, activation, dtype, tile, family, wgmma] = variant;
  return fmt::format(R"(// {}
#pragma once

#include "contract/variant.h"

namespace w4moe {{

inline constexpr Variant kVariant{{
    .kind = KernelKind::{},
    .arch = Arch::{},
    .hidden = {},
    .intermediate = {},
    .format = {},
    .activation = Activation::{},
    .dtype = DType::{},
    .tile = {},
    .family = Family::{},
    .wgmma = {},
}};

}}  // namespace w4moe
)",
                     description, kind_name(kind), to_string(arch), hidden, intermediate, format_text(format),
                     name_of(activation), name_of(dtype), tile_text(tile), family_name(family), wgmma_text(wgmma));
}

std::string describe(const Variant& v) {
  std::string text = fmt::format("{} {}", kind_name(v.kind), to_string(v.arch));
  if (v.hidden > 0) text += fmt::format(", H {}", v.hidden);
  if (v.intermediate > 0) text += fmt::format(", I {}", v.intermediate);
  if (v.kind == KernelKind::route || v.kind == KernelKind::route_count || v.kind == KernelKind::route_place) return text;
  text += fmt::format(", {}", to_string(v.dtype));
  if (v.kind == KernelKind::combine) return text;
  text += fmt::format(", {}", to_string(v.format));
  if (v.kind == KernelKind::fc1 || v.kind == KernelKind::fc1_direct) text += fmt::format(", {}", to_string(v.activation));
  if (v.is_gemm())
    text += fmt::format(", {} family, blocks of {} rows, {} threads", family_name(v.family), v.block_rows(), v.threads());
  return text;
}

}  // namespace

std::string_view kind_name(KernelKind kind) {
  switch (kind) {
    case KernelKind::route: return "route";
    case KernelKind::fc1: return "fc1";
    case KernelKind::fc2: return "fc2";
    case KernelKind::combine: return "combine";
    case KernelKind::fc2_direct: return "fc2_direct";
    case KernelKind::pack: return "pack";
    case KernelKind::scan: return "scan";
    case KernelKind::route_count: return "route_count";
    case KernelKind::route_place: return "route_place";
    case KernelKind::fc1_direct: return "fc1_direct";
  }
  return "?";
}

std::string_view family_name(Family family) { return family == Family::wgmma ? "wgmma" : "portable"; }

KernelSource render(const Variant& variant) {
  KernelSource source;
  const std::string_view kind = kind_name(variant.kind);
  source.description = describe(variant);
  source.entry_name = fmt::format("w4moe_{}", kind);
  source.variant_text = variant_text(variant, source.description);
  source.entry_text =
      fmt::format("#include \"{}\"\n#include \"kernels/{}{}.cuh\"\n", kVariantHeaderName, kind, variant.is_wgmma() ? "_wgmma" : "");
  return source;
}

}  // namespace w4moe
