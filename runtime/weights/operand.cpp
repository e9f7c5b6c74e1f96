#include "runtime/weights/operand.hpp"

#include <array>

namespace w4moe {

std::string_view to_string(SourceType type) {
  switch (type) {
    case SourceType::u8: return "u8";
    case SourceType::i8: return "i8";
    case SourceType::i32: return "i32";
    case SourceType::e8m0: return "e8m0";
    case SourceType::e4m3: return "e4m3";
    case SourceType::bf16: return "bf16";
    case SourceType::f16: return "f16";
    case SourceType::f32: return "f32";
  }
  return "unknown";
}

i64 source_type_bytes(SourceType type) {
  switch (type) {
    case SourceType::i32:
    case SourceType::f32: return 4;
    case SourceType::bf16:
    case SourceType::f16: return 2;
    default: return 1;
  }
}

std::string_view to_string(Projection projection) {
  switch (projection) {
    case Projection::gate: return "gate";
    case Projection::up: return "up";
    case Projection::down: return "down";
  }
  return "unknown";
}

bool is_stacked(const SourceOperand& operand, std::size_t rank, i64 experts) {
  return operand.size() == 1 && (operand[0].shape.size() > rank || experts > 1);
}

ExpertTensor expert_tensor(const SourceOperand& operand, std::size_t rank, i64 experts, i64 expert) {
  const bool stacked = is_stacked(operand, rank, experts);
  const SourceTensor& tensor = stacked ? operand[0] : operand[static_cast<std::size_t>(expert)];
  std::array<i64, 3> distance{};  // from one expert, row, column to the next, in bytes
  i64 contiguous = 1;
  const std::size_t dims = tensor.shape.size();
  for (std::size_t i = 0; i < dims && i < distance.size(); ++i) {
    const std::size_t dim = dims - 1 - i;
    const i64 elems = tensor.strides_elems.empty() ? contiguous : tensor.strides_elems[dim];
    distance[i < rank ? 2 - i : 0] = elems * source_type_bytes(tensor.type);
    contiguous *= tensor.shape[dim];
  }
  ExpertTensor found{static_cast<const u8*>(tensor.data), tensor.type, distance[1], distance[2], stacked ? distance[0] : 0};
  if (stacked) found.data += expert * found.expert_stride_bytes;
  return found;
}

ProjectionRows projection_rows(const Problem& problem, const SourceWeights& source, Projection projection) {
  const i64 hidden = problem.shape.hidden;
  const i64 features = problem.shape.intermediate;
  if (projection == Projection::down) return ProjectionRows{&source.down, hidden, hidden, features};
  const bool is_up = projection == Projection::up;
  switch (source.gate_up_order) {
    case GateUpOrder::gate_first: return ProjectionRows{&source.gate_up, 2 * features, features, hidden, is_up ? features : 0};
    case GateUpOrder::up_first: return ProjectionRows{&source.gate_up, 2 * features, features, hidden, is_up ? 0 : features};
    case GateUpOrder::interleaved: return ProjectionRows{&source.gate_up, 2 * features, features, hidden, is_up ? 1 : 0, 2};
    default: return ProjectionRows{is_up ? &source.up : &source.gate, features, features, hidden};
  }
}

std::span<const Projection> projections_of(const Problem& problem) {
  static constexpr std::array kGated{Projection::gate, Projection::up, Projection::down};
  return std::span(kGated).subspan(is_gated(problem.activation) ? 0 : 1);
}

float global_factor(const SourceWeights& source, Projection projection, i64 expert) {
  if (source.global_convention == GlobalConvention::none) return 1.0f;
  const std::vector<float>& values = projection == Projection::gate ? source.gate_global
                                     : projection == Projection::up ? source.up_global
                                                                    : source.down_global;
  const float value = values[static_cast<std::size_t>(expert)];
  return source.global_convention == GlobalConvention::reciprocal ? 1.0f / value : value;
}

}  // namespace w4moe
