#include "runtime/capi/owned.hpp"

namespace w4moe::capi {

OwnedProblem::OwnedProblem(const Problem& from) : name_(from.name), format_(to_string(from.format)), activation_(to_string(from.activation)) {
  W4MOE_INIT(c_);
  c_.name = name_.c_str();
  c_.hidden = from.shape.hidden;
  c_.intermediate = from.shape.intermediate;
  c_.experts = from.shape.experts;
  c_.topk = from.shape.topk;
  c_.max_tokens = from.shape.max_tokens;
  c_.format = format_.c_str();
  c_.activation = activation_.c_str();
  c_.dtype = from.dtype == DType::f16 ? W4MOE_DTYPE_F16 : W4MOE_DTYPE_BF16;
  c_.has_bias = from.has_bias ? 1 : 0;
  c_.weight_on_input = from.weight_on_input ? 1 : 0;
  c_.compact_tail = from.compact_tail ? 1 : 0;
  c_.has_alpha = c_.has_beta = 1;
  c_.alpha = from.params.alpha;
  c_.beta = from.params.beta;
  c_.has_limit = from.params.has_limit != 0 ? 1 : 0;
  c_.no_limit = from.params.has_limit != 0 ? 0 : 1;
  c_.limit = from.params.has_limit != 0 ? from.params.limit : 0.0f;
}

OwnedSource::OwnedSource(SourceWeights from) : from_(std::move(from)) {
  W4MOE_INIT(c_);
  c_.gate_up_order = static_cast<int32_t>(from_.gate_up_order);
  c_.code_order = static_cast<int32_t>(from_.code_order);
  c_.code_sign = static_cast<int32_t>(from_.code_sign);
  c_.scale_layout = static_cast<int32_t>(from_.scale_layout);
  c_.zero_order = static_cast<int32_t>(from_.zero_order);
  c_.zero_add = from_.zero_add;
  c_.global_convention = static_cast<int32_t>(from_.global_convention);
  c_.on_device = from_.on_device ? 1 : 0;
  c_.omit_output_bias = from_.output_bias ? 0 : 1;
  c_.gate_up = matrix(from_.gate_up);
  c_.gate = matrix(from_.gate);
  c_.up = matrix(from_.up);
  c_.down = matrix(from_.down);
  const auto globals = [](const std::vector<float>& values) { return values.empty() ? nullptr : values.data(); };
  c_.gate_global = globals(from_.gate_global);
  c_.up_global = globals(from_.up_global);
  c_.down_global = globals(from_.down_global);
}

const int64_t* OwnedSource::numbers(const std::vector<i64>& from) {
  if (from.empty()) return nullptr;
  return numbers_.emplace_back(from.begin(), from.end()).data();
}

w4moe_operand OwnedSource::operand(const SourceOperand& from) {
  if (from.empty()) return w4moe_operand{nullptr, 0};
  std::vector<w4moe_tensor>& list = tensors_.emplace_back();
  for (const SourceTensor& t : from) {
    list.push_back(w4moe_tensor{t.data, numbers(t.shape), numbers(t.strides_elems), static_cast<int32_t>(t.type) + 1, static_cast<int32_t>(t.shape.size())});
  }
  return w4moe_operand{list.data(), static_cast<int64_t>(list.size())};
}

w4moe_matrix OwnedSource::matrix(const SourceMatrix& from) {
  return w4moe_matrix{operand(from.codes), operand(from.scales), operand(from.zeros), operand(from.bias)};
}

}  // namespace w4moe::capi
