// The one gate for checkpoint tensors: whatever the packer and the references read has passed here.
#include <algorithm>
#include <cmath>

#include "generator/problem/errors.hpp"
#include "runtime/weights/operand.hpp"

namespace w4moe {
namespace {

using Dims = std::vector<i64>;
using Types = std::span<const SourceType>;

std::string describe(const Dims& dims) { return fmt::format("[{}]", fmt::join(dims, ", ")); }

std::string describe(Types types) {
  std::string text;
  for (const SourceType type : types) text += fmt::format("{}{}", text.empty() ? "" : " or ", to_string(type));
  return text;
}

/// Elements of a shape, or -1 where that is no sensible number.
i64 element_count(const Dims& shape) {
  i64 count = 1;
  for (const i64 dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(count, dim, &count)) return -1;
  }
  return count;
}

/// `flat`: any contiguous shape with the elements of `dims` will do.
Status check_tensor(const std::string& name, const SourceTensor& tensor, const Dims& dims, bool flat, Types types) {
  if (tensor.data == nullptr) return invalid_argument("{}: no data pointer", name);
  if (std::find(types.begin(), types.end(), tensor.type) == types.end()) {
    return invalid_argument("{}: dtype {}, expected {}", name, to_string(tensor.type), describe(types));
  }
  if (!tensor.strides_elems.empty() && tensor.strides_elems.size() != tensor.shape.size()) {
    return invalid_argument("{}: {} strides for {} dimensions", name, tensor.strides_elems.size(), tensor.shape.size());
  }
  if (flat) {
    if (element_count(tensor.shape) != element_count(dims)) {
      return invalid_argument("{}: shape {}, expected {} elements in all", name, describe(tensor.shape), element_count(dims));
    }
    if (!tensor.strides_elems.empty()) return invalid_argument("{}: strides given, but a swizzled tensor is contiguous", name);
    return {};
  }
  if (tensor.shape != dims) return invalid_argument("{}: shape {}, expected {}", name, describe(tensor.shape), describe(dims));
  for (const i64 stride : tensor.strides_elems) {
    if (stride < 0) return invalid_argument("{}: stride {} (accepted: 0 and more)", name, stride);
  }
  return {};
}

/// Checks an operand of all experts; `dims` are those of one expert.
Status check_operand(const std::string& name, const SourceOperand& operand, i64 experts, Dims dims, bool flat, Types types) {
  if (operand.empty()) return invalid_argument("{}: missing, expected shape {} for each of {} experts", name, describe(dims), experts);
  if (is_stacked(operand, flat ? 2 : dims.size(), experts)) {
    dims.insert(dims.begin(), experts);
    return check_tensor(name, operand[0], dims, flat, types);
  }
  if (static_cast<i64>(operand.size()) != experts) {
    return invalid_argument("{}: {} tensors, expected one of all experts or one for each of {}", name, operand.size(), experts);
  }
  for (std::size_t expert = 0; expert < operand.size(); ++expert) {
    if (Status s = check_tensor(fmt::format("{}, expert {}", name, expert), operand[expert], dims, flat, types); !s) return s;
  }
  return {};
}

/// Codes come as bytes or as words, which fixes the number of columns.
Status check_codes(const std::string& name, const SourceOperand& operand, i64 experts, CodeOrder order, i64 rows, i64 k) {
  static constexpr SourceType kTypes[] = {SourceType::u8, SourceType::i8, SourceType::i32};
  if (order == CodeOrder::awq_words) return check_operand(name, operand, experts, {word_rows(rows), k}, false, Types(kTypes).last(1));
  const bool words = !operand.empty() && operand[0].type == SourceType::i32;
  const i64 columns = words ? code_word_columns(k) : code_byte_columns(k);
  if (Status s = check_operand(name, operand, experts, {rows, columns}, false, kTypes); !s) return s;
  for (const SourceTensor& tensor : operand) {
    if ((tensor.type == SourceType::i32) != words) {
      return invalid_argument("{}: dtypes {} and {} are mixed", name, to_string(operand[0].type), to_string(tensor.type));
    }
    if (!words && !tensor.strides_elems.empty() && tensor.strides_elems.back() != 1) {
      return invalid_argument("{}: bytes of codes lie {} apart along K, expected 1", name, tensor.strides_elems.back());
    }
  }
  return {};
}

Types scale_types(ScaleType type) {
  static constexpr SourceType kE8m0[] = {SourceType::e8m0, SourceType::u8};
  static constexpr SourceType kE4m3[] = {SourceType::e4m3, SourceType::u8};
  static constexpr SourceType kBf16[] = {SourceType::bf16};
  static constexpr SourceType kF16[] = {SourceType::f16};
  switch (type) {
    case ScaleType::e8m0: return kE8m0;
    case ScaleType::e4m3: return kE4m3;
    case ScaleType::bf16: return kBf16;
    case ScaleType::f16: return kF16;
  }
  return {};
}

Status check_scales(const std::string& name, const SourceOperand& operand, const Problem& problem, ScaleLayout layout, i64 rows,
                    i64 groups) {
  const Types types = scale_types(problem.format.scale);
  const i64 experts = problem.shape.experts;
  switch (layout) {
    case ScaleLayout::row_major: return check_operand(name, operand, experts, {rows, groups}, false, types);
    case ScaleLayout::transposed: return check_operand(name, operand, experts, {groups, rows}, false, types);
    default: return check_operand(name, operand, experts, {swizzled_scale_bytes(rows, groups)}, true, types);
  }
}

Status check_zeros(const std::string& name, const SourceOperand& operand, i64 experts, ZeroOrder order, i64 rows, i64 groups) {
  static constexpr SourceType kBytes[] = {SourceType::u8, SourceType::i8};
  static constexpr SourceType kWords[] = {SourceType::i32};
  switch (order) {
    case ZeroOrder::bytes: return check_operand(name, operand, experts, {rows, groups}, false, kBytes);
    case ZeroOrder::nibbles_along_rows:
    case ZeroOrder::awq_words: return check_operand(name, operand, experts, {word_rows(rows), groups}, false, kWords);
    default: return check_operand(name, operand, experts, {rows, zero_byte_columns(groups)}, false, kBytes);
  }
}

Status check_matrix(std::string_view name, const SourceMatrix& matrix, const Problem& problem, const SourceWeights& source,
                    i64 rows, i64 k, bool has_bias) {
  const i64 groups = problem.format.groups(k);
  const i64 experts = problem.shape.experts;
  if (Status s = check_codes(fmt::format("{}.codes", name), matrix.codes, experts, source.code_order, rows, k); !s) return s;
  if (Status s = check_scales(fmt::format("{}.scales", name), matrix.scales, problem, source.scale_layout, rows, groups); !s) return s;
  const std::string zeros = fmt::format("{}.zeros", name);
  if (problem.format.has_zero_point) {
    if (Status s = check_zeros(zeros, matrix.zeros, experts, source.zero_order, rows, groups); !s) return s;
  } else if (!matrix.zeros.empty()) {
    return invalid_argument("{}: given, but format {} has no zero points", zeros, to_string(problem.format));
  }
  const std::string bias = fmt::format("{}.bias", name);
  static constexpr SourceType kBias[] = {SourceType::bf16, SourceType::f16, SourceType::f32};
  if (has_bias) return check_operand(bias, matrix.bias, experts, {rows}, false, kBias);
  if (!matrix.bias.empty()) return invalid_argument("{}: given, but the problem has no bias here", bias);
  return {};
}

Status check_orders(const Problem& problem, const SourceWeights& source) {
  const QuantFormat& format = problem.format;
  if (source.gate_up_order == GateUpOrder::unspecified) {
    return invalid_argument("gate_up_order is not named (accepted: separate, gate_first, up_first, interleaved)");
  }
  if (!is_gated(problem.activation) && source.gate_up_order != GateUpOrder::separate) {
    return invalid_argument("gate_up_order: activation {} has no gate (accepted: separate)", to_string(problem.activation));
  }
  if (source.code_order == CodeOrder::unspecified) {
    return invalid_argument("code_order is not named (accepted: low_nibble_first, high_nibble_first, awq_words)");
  }
  if (source.scale_layout == ScaleLayout::unspecified) {
    return invalid_argument("scale_layout is not named (accepted: row_major, transposed, swizzled_128x4)");
  }
  if (source.scale_layout == ScaleLayout::swizzled_128x4 && format.scale_bytes() != 1) {
    return invalid_argument("scale_layout swizzled_128x4 is for 8-bit scales, not for format {}", to_string(format));
  }
  if (source.global_convention == GlobalConvention::unspecified) {
    return invalid_argument("global_convention is not named (accepted: none, multiply, reciprocal)");
  }
  if (format.is_int4() && source.code_sign == CodeSign::unspecified) {
    return invalid_argument("code_sign is not named (accepted: offset8, twos_complement)");
  }
  const bool names_zeros = source.zero_order != ZeroOrder::unspecified && source.zero_order != ZeroOrder::none;
  if (format.has_zero_point && !names_zeros) {
    return invalid_argument(
        "zero_order is not named, and format {} has zero points (accepted: bytes, nibbles_along_rows, awq_words, "
        "nibbles_along_groups, nibbles_along_groups_high_first)",
        to_string(format));
  }
  if (!format.has_zero_point && names_zeros) {
    return invalid_argument("zero_order is named, but format {} has no zero points (accepted: none)", to_string(format));
  }
  return {};
}

Status check_globals(const Problem& problem, const SourceWeights& source) {
  const bool any = source.global_convention != GlobalConvention::none;
  for (const Projection projection : {Projection::gate, Projection::up, Projection::down}) {
    const std::vector<float>& values = projection == Projection::gate ? source.gate_global
                                       : projection == Projection::up ? source.up_global
                                                                      : source.down_global;
    const bool wanted = any && (projection != Projection::gate || is_gated(problem.activation));
    const i64 expected = wanted ? problem.shape.experts : 0;
    if (static_cast<i64>(values.size()) != expected) {
      return invalid_argument("{}_global: {} values, expected {}", to_string(projection), values.size(), expected);
    }
    for (i64 expert = 0; expert < expected; ++expert) {
      if (!std::isfinite(global_factor(source, projection, expert) * kNvGlobalFactor)) {
        return invalid_argument("{}_global of expert {}: {} gives no finite factor", to_string(projection), expert,
                                values[static_cast<std::size_t>(expert)]);
      }
    }
  }
  return {};
}

Status check_absent(std::string_view name, const SourceMatrix& matrix, std::string_view why) {
  if (matrix.codes.empty() && matrix.scales.empty() && matrix.zeros.empty() && matrix.bias.empty()) return {};
  return invalid_argument("{}: tensors given, but {}", name, why);
}

Status check_fc1(const Problem& problem, const SourceWeights& source) {
  const i64 hidden = problem.shape.hidden;
  const i64 features = problem.shape.intermediate;
  const bool bias = problem.has_bias;
  if (source.gate_up_order != GateUpOrder::separate) {
    constexpr std::string_view kWhy = "gate_up_order names one tensor for both";
    if (Status s = check_absent("gate", source.gate, kWhy); !s) return s;
    if (Status s = check_absent("up", source.up, kWhy); !s) return s;
    return check_matrix("gate_up", source.gate_up, problem, source, 2 * features, hidden, bias);
  }
  if (Status s = check_absent("gate_up", source.gate_up, "gate_up_order names separate tensors"); !s) return s;
  Status gate = is_gated(problem.activation) ? check_matrix("gate", source.gate, problem, source, features, hidden, bias)
                                             : check_absent("gate", source.gate, "the activation has no gate");
  return gate ? check_matrix("up", source.up, problem, source, features, hidden, bias) : gate;
}

}  // namespace

Status validate_source(const Problem& problem, const SourceWeights& source) {
  if (Status s = validate(problem); !s) return s;
  if (Status s = check_orders(problem, source); !s) return s;
  if (Status s = check_globals(problem, source); !s) return s;
  if (Status s = check_fc1(problem, source); !s) return s;
  return check_matrix("down", source.down, problem, source, problem.shape.hidden, problem.shape.intermediate,
                      problem.has_bias && source.output_bias);
}

}  // namespace w4moe
