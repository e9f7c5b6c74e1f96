// The packing and scanning kernels, run on the host: their bytes are those of the CPU packer, for stacked and for separate experts.
#include <cstring>

#include "contract/layout_id.h"
#include "generator/render/variant_header.hpp"
#include "packing/pack_args.h"
#include "tests/lockstep/support.hpp"
#include "tests/support/layers.hpp"

namespace w4moe::lockstep {
namespace {

using test::int4_format;
using test::packed;
using test::small_problem;

Variant packing_variant(KernelKind kind, const QuantFormat& format) {
  Variant variant;
  variant.kind = kind;
  variant.format = format;
  return variant;
}

Kernel load(LockstepDevice& device, const Variant& variant) {
  const w4moe::KernelSource rendered = render(variant);
  KernelSource source{rendered.description, rendered.entry_text, {{std::string(kVariantHeaderName), rendered.variant_text}}, rendered.entry_name};
  Result<Kernel> kernel = device.load(source);
  REQUIRE_OK(kernel);
  CHECK(*kernel->fact("w4moe_fact_layout_id") == kernel_layout_id(variant.weights()));
  CHECK(*kernel->fact("w4moe_fact_threads") == static_cast<u64>(variant.threads()));
  return *kernel;
}

/// Packs a layer with the kernels and compares the units with those of pack_on_cpu.
void check_kernels(const Problem& problem, const SyntheticLayer& layer) {
  const QuantFormat& format = problem.format;
  LockstepDevice device(test_options());
  const Variant pack_variant = packing_variant(KernelKind::pack, format);
  const Kernel pack = load(device, pack_variant);
  const Kernel scan = load(device, packing_variant(KernelKind::scan, format));
  const i64 threads = pack_variant.threads();

  PackOptions options;
  options.allow_nan_scales = true;
  const std::vector<std::byte> expected = packed(problem, layer.source, options);
  const Result<ScanReport> report = scan_on_cpu(problem, layer.source);
  REQUIRE_OK(report);
  const WeightLayout layout = weight_layout(problem);
  std::vector<std::byte> units(expected.size(), std::byte{0xa5});
  u8* const base = reinterpret_cast<u8*>(units.data());

  const bool stacked = layer.source.down.codes.size() == 1;
  const bool gated = is_gated(problem.activation);
  for (i64 expert = 0; expert < problem.shape.experts; expert += stacked ? problem.shape.experts : 1) {
    const i64 experts = stacked ? problem.shape.experts : 1;
    std::vector<ScanResult> scans(static_cast<std::size_t>(experts * kProjections));
    for (const Projection projection : {Projection::gate, Projection::up, Projection::down}) {
      if (projection == Projection::gate && !gated) continue;
      ScanArgs args{source_view(problem, layer.source, projection, expert), scans.data(), projection};
      const Launch grid{ceil_div(scan_items(format, args.view), threads), experts, static_cast<int>(threads), 0};
      REQUIRE_OK(device.launch(scan, grid, args));
    }
    for (std::size_t i = 0; i < scans.size(); ++i) {
      const ScanResult& cpu = report->results[static_cast<std::size_t>(expert * kProjections) + i];
      CHECK((scans[i].min_byte == cpu.min_byte && scans[i].max_byte == cpu.max_byte && scans[i].first_nan == cpu.first_nan));
    }
    for (const bool is_fc1 : {true, false}) {
      const MatrixLayout matrix = is_fc1 ? layout.fc1() : layout.fc2();
      PackArgs args;
      args.low_projection = !is_fc1 ? Projection::down : gated ? Projection::gate : Projection::up;
      args.high_projection = is_fc1 ? Projection::up : Projection::down;
      args.low = source_view(problem, layer.source, args.low_projection, expert);
      args.high = source_view(problem, layer.source, args.high_projection, expert);
      args.scans = scans.data();
      args.units = base + (is_fc1 ? layout.fc1_offset_bytes() : layout.fc2_offset_bytes()) + matrix.unit_offset_bytes(expert, 0, 0);
      args.rows = matrix.rows;
      args.k = matrix.k;
      args.gated_fc1 = is_fc1 && gated;
      const Launch grid{ceil_div(pack_items(matrix), threads), experts, static_cast<int>(threads), 0};
      REQUIRE_OK(device.launch(pack, grid, args));
    }
  }
  for (const auto& [offset, bytes] : {std::pair(layout.fc1_offset_bytes(), layout.fc1().total_bytes()),
                                      std::pair(layout.fc2_offset_bytes(), layout.fc2().total_bytes())}) {
    CHECK(std::memcmp(base + offset, expected.data() + offset, static_cast<std::size_t>(bytes)) == 0);
  }
}

TEST_CASE("W5: packing kernels give the bytes of the CPU packer, MXFP4 with a shifted window and a NaN") {
  const Problem problem = small_problem(96, 40, 3, kMxfp4);
  SyntheticOptions options;
  options.mx_first_byte = 130;
  options.mx_last_byte = 150;
  SyntheticLayer layer = make_layer(problem, options);
  const_cast<u8*>(static_cast<const u8*>(layer.source.down.scales[0].data))[7] = 255;
  check_kernels(problem, layer);
}

TEST_CASE("W5: packing kernels give the bytes of the CPU packer, NVFP4 with swizzled scales, expert by expert") {
  const Problem problem = small_problem(64, 80, 2, kNvfp4);
  SyntheticOptions options;
  options.scale_layout = ScaleLayout::swizzled_128x4;
  options.gate_up_order = GateUpOrder::separate;
  options.per_expert_tensors = true;
  check_kernels(problem, make_layer(problem, options));
}

TEST_CASE("W5: packing kernels give the bytes of the CPU packer, INT4 with zero points, ungated") {
  const Problem problem = small_problem(64, 96, 2, int4_format(32, true), Activation::relu2);
  SyntheticOptions options;
  options.zero_order = ZeroOrder::nibbles_along_rows;
  options.code_words = true;
  check_kernels(problem, make_layer(problem, options));
}

}  // namespace
}  // namespace w4moe::lockstep
