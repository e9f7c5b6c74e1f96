#include "runtime/weights/regions.hpp"

#include <cmath>
#include <cstring>

#include "runtime/weights/float_bits.hpp"
#include "runtime/weights/operand.hpp"

namespace w4moe {

WeightLayout weight_layout(const Problem& problem) {
  return WeightLayout{problem.shape, problem.format, is_gated(problem.activation), problem.has_bias};
}

Result<i64> prepared_weight_bytes(const Problem& problem) {
  if (Status s = validate(problem); !s) return s.error();
  return weight_layout(problem).total_bytes();
}

std::vector<std::byte> header_region(const WeightLayout& layout) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(layout.header_bytes()));
  const WeightHeader header = make_weight_header(layout);
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}

std::array<RegionSpan, 2> unit_gaps(const WeightLayout& layout) {
  const i64 fc1_end = layout.fc1_offset_bytes() + layout.fc1().total_bytes();
  const i64 fc2_end = layout.fc2_offset_bytes() + layout.fc2().total_bytes();
  return {RegionSpan{fc1_end, layout.fc2_offset_bytes() - fc1_end}, RegionSpan{fc2_end, layout.globals_offset_bytes() - fc2_end}};
}

ExpertGlobals expert_globals(const Problem& problem, const SourceWeights& source, std::span<const ScanResult> scans, i64 expert) {
  const auto factor = [&](Projection projection) {
    const float global = global_factor(source, projection, expert);
    if (problem.format.is_nvfp4()) return global * kNvGlobalFactor;
    if (!problem.format.is_mxfp4() || problem.format.wide_exponent) return global;
    const MxWindow window = mx_window(scans[static_cast<std::size_t>(expert * kProjections + static_cast<i64>(projection))]);
    return std::ldexp(global, static_cast<int>(window.base) - static_cast<int>(kMxDefaultBase));
  };
  ExpertGlobals globals;
  globals.up = factor(Projection::up);
  globals.down = factor(Projection::down);
  // An ungated FC1 has one projection; whichever of the two names a kernel reads, it finds that one's factor.
  globals.gate = is_gated(problem.activation) ? factor(Projection::gate) : globals.up;
  globals.reserved = 0.0f;
  return globals;
}

float bias_value(const SourceOperand& operand, i64 experts, i64 expert, i64 index) {
  const ExpertTensor bias = expert_tensor(operand, 1, experts, expert);
  const u8* at = bias.data + index * bias.column_stride_bytes;
  if (bias.type == SourceType::f32) {
    float value = 0;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  u16 bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  return bias.type == SourceType::bf16 ? float_of_bf16(bits) : float_of_f16(bits);
}

std::vector<std::byte> tail_region(const Problem& problem, const SourceWeights& source, std::span<const ScanResult> scans) {
  const WeightLayout layout = weight_layout(problem);
  const i64 start = layout.globals_offset_bytes();
  std::vector<std::byte> bytes(static_cast<std::size_t>(layout.total_bytes() - start));
  const i64 experts = problem.shape.experts;
  for (i64 expert = 0; expert < experts; ++expert) {
    const ExpertGlobals globals = expert_globals(problem, source, scans, expert);
    std::memcpy(bytes.data() + expert * static_cast<i64>(sizeof(globals)), &globals, sizeof(globals));
  }
  if (!problem.has_bias) return bytes;

  float* const fc1 = reinterpret_cast<float*>(bytes.data() + (layout.fc1_bias_offset_bytes() - start));
  float* const fc2 = reinterpret_cast<float*>(bytes.data() + (layout.fc2_bias_offset_bytes() - start));
  const Projection first = is_gated(problem.activation) ? Projection::gate : Projection::up;
  const ProjectionRows rows[] = {projection_rows(problem, source, first), projection_rows(problem, source, Projection::up)};
  for (i64 expert = 0; expert < experts; ++expert) {
    float* const fc1_row_bias = fc1 + expert * layout.fc1_bias_stride_elems();
    for (i64 row = 0; row < layout.fc1_bias_stride_elems(); ++row) {
      const Fc1Row at = fc1_row(layout.gated, row);
      if (at.feature >= problem.shape.intermediate) continue;
      const ProjectionRows& from = rows[at.is_up ? 1 : 0];
      fc1_row_bias[row] = bias_value(from.matrix->bias, experts, expert, from.first + at.feature * from.step);
    }
    if (!source.output_bias) continue;
    float* const fc2_row_bias = fc2 + expert * layout.fc2_bias_stride_elems();
    for (i64 row = 0; row < problem.shape.hidden; ++row) fc2_row_bias[row] = bias_value(source.down.bias, experts, expert, row);
  }
  return bytes;
}

}  // namespace w4moe
