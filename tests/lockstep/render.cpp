#include "tests/lockstep/render.hpp"

#include <fmt/format.h>

namespace w4moe::lockstep {

KernelSource render_variant(const Variant& v) {
  static constexpr const char* kKinds[] = {"route", "fc1", "fc2", "combine"};
  const std::string kind = kKinds[static_cast<int>(v.kind)];
  const QuantFormat& f = v.format;
  const GemmTile& t = v.tile;
  KernelSource source;
  source.name = kind;
  source.entry = "w4moe_" + kind;
  source.text = fmt::format("#include \"w4moe_variant.h\"\n#include \"kernels/{}.cuh\"\n", kind);
  source.headers.emplace_back(
      "w4moe_variant.h",
      fmt::format("#include \"contract/variant.h\"\nnamespace w4moe {{\ninline constexpr Variant kVariant{{static_cast<KernelKind>({}), "
                  "static_cast<Arch>({}), {}, {}, QuantFormat{{static_cast<CodeType>({}), static_cast<ScaleType>({}), {}, {}, {}}}, "
                  "static_cast<Activation>({}), static_cast<DType>({}), GemmTile{{{}, {}, {}, {}, {}, {}, {}}}}};\n}}\n",
                  static_cast<int>(v.kind), static_cast<int>(v.arch), v.hidden, v.intermediate, static_cast<int>(f.code),
                  static_cast<int>(f.scale), f.group_size, f.has_zero_point, f.wide_exponent, static_cast<int>(v.activation),
                  static_cast<int>(v.dtype), t.block_rows, t.warps_rows, t.warps_k, t.strips_per_warp, t.units_per_warp, t.stages,
                  t.min_ctas_per_sm));
  return source;
}

}  // namespace w4moe::lockstep
