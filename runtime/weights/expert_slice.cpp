#include "runtime/weights/expert_slice.hpp"

#include "runtime/weights/operand.hpp"

namespace w4moe {
namespace {

/// One expert's tensor of rank 2, as an operand of one expert. Swizzled scales are one flat run of `flat_bytes`.
SourceOperand slice(const SourceOperand& operand, i64 experts, i64 expert, i64 flat_bytes) {
  if (operand.empty()) return {};
  const bool stacked = is_stacked(operand, 2, experts);
  SourceTensor tensor = operand[stacked ? 0 : static_cast<std::size_t>(expert)];
  if (flat_bytes > 0) {
    if (stacked) tensor.data = static_cast<const u8*>(tensor.data) + expert * flat_bytes;
    tensor.shape = {flat_bytes};
    return {tensor};
  }
  tensor.data = expert_tensor(operand, 2, experts, expert).data;
  if (stacked && tensor.shape.size() > 2) {
    tensor.shape.erase(tensor.shape.begin());
    if (!tensor.strides_elems.empty()) tensor.strides_elems.erase(tensor.strides_elems.begin());
  }
  return {tensor};
}

}  // namespace

i64 covered_bytes(const SourceTensor& tensor) {
  i64 last = 0;
  i64 contiguous = 1;
  for (std::size_t i = tensor.shape.size(); i-- > 0;) {
    last += (tensor.shape[i] - 1) * (tensor.strides_elems.empty() ? contiguous : tensor.strides_elems[i]);
    contiguous *= tensor.shape[i];
  }
  return contiguous == 0 ? 0 : (last + 1) * source_type_bytes(tensor.type);
}

Problem one_expert_problem(Problem problem) {
  problem.shape.experts = 1;
  problem.shape.topk = 1;
  problem.has_bias = false;
  return problem;
}

SourceWeights slice_expert(const Problem& problem, const SourceWeights& source, i64 expert) {
  SourceWeights one = source;
  const i64 experts = problem.shape.experts;
  const auto cut = [&](SourceMatrix& matrix, i64 rows, i64 k) {
    const bool swizzled = source.scale_layout == ScaleLayout::swizzled_128x4;
    matrix.codes = slice(matrix.codes, experts, expert, 0);
    matrix.scales = slice(matrix.scales, experts, expert, swizzled ? swizzled_scale_bytes(rows, problem.format.groups(k)) : 0);
    matrix.zeros = slice(matrix.zeros, experts, expert, 0);
    matrix.bias.clear();
  };
  cut(one.gate_up, 2 * problem.shape.intermediate, problem.shape.hidden);
  cut(one.gate, problem.shape.intermediate, problem.shape.hidden);
  cut(one.up, problem.shape.intermediate, problem.shape.hidden);
  cut(one.down, problem.shape.hidden, problem.shape.intermediate);
  one.global_convention = GlobalConvention::none;
  one.gate_global.clear();
  one.up_global.clear();
  one.down_global.clear();
  return one;
}

}  // namespace w4moe
