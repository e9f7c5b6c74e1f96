// The CPU packs whole units by tables; here each layout, format and tail is packed lane by lane too, as the GPU's kernel does it.
#include <cstring>

#include "packing/pack_unit.h"
#include "runtime/weights/operand.hpp"
#include "runtime/weights/scan.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/layers.hpp"

namespace w4moe {
namespace {

using test::int4_format;
using test::small_problem;

/// Bytes of one matrix of one expert that differ between the packed layer and pack_unit_lane.
i64 lane_differences(const Problem& problem, const SourceWeights& source, const std::vector<std::byte>& prepared, i64 expert, bool fc1) {
  const WeightLayout layout = weight_layout(problem);
  const MatrixLayout matrix = fc1 ? layout.fc1() : layout.fc2();
  const bool gated_fc1 = fc1 && is_gated(problem.activation);
  const Projection low = !fc1 ? Projection::down : gated_fc1 ? Projection::gate : Projection::up;
  const Projection high = !fc1 ? Projection::down : Projection::up;
  const SourceView low_view = source_view(problem, source, low, expert);
  const SourceView high_view = source_view(problem, source, high, expert);
  const u32 low_base = mx_window(scan_projection(problem, low_view, 1)).base;
  const u32 high_base = mx_window(scan_projection(problem, high_view, 1)).base;
  const std::byte* const units = prepared.data() + (fc1 ? layout.fc1_offset_bytes() : layout.fc2_offset_bytes());
  const auto unit_bytes = static_cast<std::size_t>(matrix.unit().unit_bytes());
  std::vector<u32> unit(unit_bytes / sizeof(u32));
  i64 different = 0;
  for (i64 strip = 0; strip < matrix.strips(); ++strip) {
    for (i64 unit_k = 0; unit_k < matrix.k_units(); ++unit_k) {
      for (i64 lane = 0; lane < kLanes; ++lane) {
        PackRow rows[2];
        strip_rows(gated_fc1, low_view, high_view, low_base, high_base, strip, lane / 4, rows);
        pack_unit_lane(problem.format, rows, unit_k, lane, reinterpret_cast<u8*>(unit.data()));
      }
      different += std::memcmp(unit.data(), units + matrix.unit_offset_bytes(expert, strip, unit_k), unit_bytes) != 0;
    }
  }
  return different;
}

void check(const Problem& problem, const SyntheticOptions& options) {
  INFO(to_string(problem.format) << ", I " << problem.shape.intermediate << ", H " << problem.shape.hidden);
  SyntheticLayer layer = make_layer(problem, options);
  if (problem.format.is_nvfp4()) {  // signs, zeros and NaNs among the scales
    for (const SourceTensor& tensor : layer.source.down.scales) {
      u8* const scales = static_cast<u8*>(const_cast<void*>(tensor.data));
      scales[0] |= 0x80;
      scales[1] = 0;
      scales[2] = 0x7f;
      scales[3] = 0xff;
    }
  }
  PackOptions pack;
  pack.allow_nan_scales = true;
  const std::vector<std::byte> prepared = test::packed(problem, layer.source, pack);
  for (i64 expert = 0; expert < problem.shape.experts; ++expert) {
    CHECK(lane_differences(problem, layer.source, prepared, expert, true) == 0);
    CHECK(lane_differences(problem, layer.source, prepared, expert, false) == 0);
  }
}

TEST_CASE("whole units packed by tables are those that lanes pack") {
  SyntheticOptions options;
  for (const QuantFormat& format : {kMxfp4, kMxfp4Wide, kNvfp4, int4_format(32), int4_format(64, true), int4_format(128, true, ScaleType::f16), int4_format(kWholeRow)}) {
    for (const i64 intermediate : {64, 128, 160, 256}) {
      if (!format.divides(intermediate)) continue;
      check(small_problem(256, intermediate, 2, format), options);
    }
  }
  check(small_problem(208, 112, 2, kNvfp4), options);  // tails of K in both, rows that fill no strip
  SyntheticOptions ungated = options;
  ungated.gate_up_order = GateUpOrder::separate;
  check(small_problem(96, 96, 2, kMxfp4, Activation::relu2), ungated);
}

TEST_CASE("whole units from each order of codes") {
  for (const CodeOrder order : {CodeOrder::low_nibble_first, CodeOrder::high_nibble_first, CodeOrder::awq_words}) {
    for (const CodeSign sign : {CodeSign::offset8, CodeSign::twos_complement}) {
      for (const bool words : {false, true}) {
        SyntheticOptions options;
        options.code_order = order;
        options.code_sign = sign;
        options.code_words = words || order == CodeOrder::awq_words;
        if (order == CodeOrder::high_nibble_first && words) continue;
        check(small_problem(128, 64, 2, int4_format(32, true)), options);
      }
    }
    SyntheticOptions options;
    options.code_order = order;
    if (order != CodeOrder::awq_words) check(small_problem(128, 64, 2, kNvfp4), options);
  }
}

}  // namespace
}  // namespace w4moe
