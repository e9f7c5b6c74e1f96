// Layers in every format and in the checkpoint layouts that the packers must take, each with tails.
#pragma once

#include <vector>

#include "tests/support/layers.hpp"

namespace w4moe::test {

/// A format, a shape with tails in it, and the way that a checkpoint stores it.
struct PrepareCase {
  const char* what;
  QuantFormat format;
  i64 hidden;
  i64 intermediate;
  i64 experts;
  Activation activation;
  bool bias;
  SyntheticOptions source;

  Problem problem() const {
    Problem p = small_problem(hidden, intermediate, experts, format, activation);
    p.has_bias = bias;
    return p;
  }
};

inline SyntheticOptions stored(GateUpOrder order, ScaleLayout scales = ScaleLayout::row_major) {
  SyntheticOptions options;
  options.gate_up_order = order;
  options.scale_layout = scales;
  options.mx_first_byte = 120;
  options.mx_last_byte = 140;  // a window of its own
  return options;
}

inline SyntheticOptions int4_stored(GateUpOrder order, CodeOrder codes, ZeroOrder zeros, CodeSign sign = CodeSign::offset8, ScaleLayout scales = ScaleLayout::row_major) {
  SyntheticOptions options = stored(order, scales);
  options.code_order = codes;
  options.code_words = codes == CodeOrder::low_nibble_first;
  options.zero_order = zeros;
  options.code_sign = sign;
  return options;
}

inline SyntheticOptions one_tensor_an_expert(SyntheticOptions options) {
  options.per_expert_tensors = true;
  return options;
}

inline SyntheticOptions with_biases_in(SyntheticOptions options, SourceType type) {
  options.bias_type = type;
  return options;
}

inline std::vector<PrepareCase> prepare_cases() {
  using enum GateUpOrder;
  const auto reciprocal = [](SyntheticOptions options) {
    options.global_convention = GlobalConvention::reciprocal;
    return options;
  };
  const auto wide = [](SyntheticOptions options) {
    options.mx_first_byte = 3;
    options.mx_last_byte = 250;
    return options;
  };
  const CodeOrder low = CodeOrder::low_nibble_first;
  return {
      {"gpt-oss", kMxfp4, 384, 352, 5, Activation::swiglu_oai, true, stored(interleaved)},
      {"mxfp4, one tensor an expert", kMxfp4, 160, 96, 7, Activation::silu, false, one_tensor_an_expert(stored(separate))},
      {"mxfp4, ungated, biases", kMxfp4, 2880, 32, 3, Activation::relu2, true, with_biases_in(stored(separate), SourceType::f32)},
      {"mxfp4, compact K tail", kMxfp4, 128, 312, 4, Activation::silu, false, stored(up_first)},
      {"mxfp4 wide", kMxfp4Wide, 256, 160, 4, Activation::geglu_tanh, true, with_biases_in(wide(stored(gate_first)), SourceType::f16)},
      {"nvfp4, ModelOpt", kNvfp4, 400, 176, 5, Activation::silu, true, stored(up_first, ScaleLayout::swizzled_128x4)},
      {"nvfp4, compressed-tensors, one tensor an expert", kNvfp4, 128, 80, 9, Activation::silu, false, one_tensor_an_expert(reciprocal(stored(separate)))},
      {"nvfp4, ungated", kNvfp4, 1600, 16, 3, Activation::relu2, true, stored(separate, ScaleLayout::swizzled_128x4)},
      {"int4 groups of 32, Kimi-K2", int4_format(32), 224, 96, 5, Activation::silu, false, one_tensor_an_expert(int4_stored(separate, low, ZeroOrder::none))},
      {"int4 groups of 64, zero points in bytes", int4_format(64, true), 320, 192, 4, Activation::silu, true,
       int4_stored(gate_first, CodeOrder::high_nibble_first, ZeroOrder::bytes)},
      {"int4 groups of 128, AWQ words, fp16", int4_format(128, true, ScaleType::f16), 256, 384, 4, Activation::silu, false,
       int4_stored(separate, CodeOrder::awq_words, ZeroOrder::awq_words, CodeSign::offset8, ScaleLayout::transposed)},
      {"int4 one group a row, zero points along rows, fp16", int4_format(kWholeRow, true, ScaleType::f16), 384, 176, 4, Activation::relu2, true,
       int4_stored(separate, low, ZeroOrder::nibbles_along_rows)},
      {"int4 groups of 32, zero points along groups, bf16, signed", int4_format(32, true), 96, 160, 3, Activation::silu, false,
       int4_stored(interleaved, low, ZeroOrder::nibbles_along_groups_high_first, CodeSign::twos_complement)},
  };
}

}  // namespace w4moe::test
