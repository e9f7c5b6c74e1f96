// What user reports tell of activations, scales, zero points and biases, as checks that run on any machine.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>

#include "tests/support/report_shapes.hpp"

namespace w4moe::test {

/// N16, N17: every flavour of the gated activation equals its own reference and differs from its neighbours; what the checkpoint's row
/// order is changes no bit. Gates and ups lie far on both sides of the limits.
inline void check_activation_matrix(Machine& machine) {
  const Shape shape = machine.is_large() ? Shape{512, 256, 8, 2, 16} : small_shape(kMxfp4);
  SyntheticOptions strong;
  strong.mx_first_byte = machine.is_large() ? 122 : 123;
  strong.mx_last_byte = strong.mx_first_byte + 2;
  for (const bool bias : {false, true}) {
    Problem problem = report_problem(shape, kMxfp4, Activation::swiglu_oai);
    problem.has_bias = bias;
    const SyntheticInputs inputs = make_inputs(problem, 9);
    std::vector<std::vector<u16>> outputs;
    std::vector<std::string> names;
    for (const float alpha : {1.0f, 1.702f}) {
      for (const float limit : {0.0f, 7.0f, 10.0f}) {
        for (const float beta : {0.0f, 1.0f}) {
          problem.params = default_params(Activation::swiglu_oai);
          problem.params.alpha = alpha;
          problem.params.beta = beta;
          problem.params.has_limit = limit > 0;
          problem.params.limit = limit;
          std::vector<u16> first;
          for (const GateUpOrder order : {GateUpOrder::interleaved, GateUpOrder::gate_first, GateUpOrder::up_first}) {
            if (!machine.is_large() && !first.empty() && !outputs.empty()) continue;  // once is enough where runs are slow
            strong.gate_up_order = order;
            SyntheticLayer source = make_layer(problem, strong);
            MachineLayer layer(machine, problem, source.source, routed_only(machine));
            const std::vector<u16> out = layer.run(inputs.inputs);
            INFO("bias " << bias << ", alpha " << alpha << ", limit " << limit << ", beta " << beta << ", order " << static_cast<int>(order));
            if (first.empty()) {
              layer.require_right(inputs.inputs, out);
              first = out;
            }
            REQUIRE(out == first);
          }
          names.push_back("alpha " + std::to_string(alpha) + " limit " + std::to_string(limit) + " beta " + std::to_string(beta));
          outputs.push_back(first);
        }
      }
    }
    for (std::size_t a = 0; a < outputs.size(); ++a) {
      for (std::size_t b = a + 1; b < outputs.size(); ++b) {
        std::vector<double> other;
        for (const u16 bits : outputs[b]) other.push_back(static_cast<double>(std::bit_cast<float>(static_cast<u32>(bits) << 16)));
        INFO(names[a] << " against " << names[b]);
        CHECK(compare_outputs(DType::bf16, outputs[a], other, shape.hidden).relative_rmse > 2 * contract_relative_rmse(DType::bf16));
      }
    }
  }
}

/// Tensor-parallel ranks of a layer, each with the full biases of its rows; `owner` adds the output bias.
inline SourceWeights shard_with_biases(const Problem& whole, const SourceWeights& source, i64 rank, i64 ranks, i64 owner) {
  SourceWeights shard = shard_of(whole, source, rank, ranks);
  const i64 features = whole.shape.intermediate / ranks;
  const auto bias = [&](i64 first) {
    const SourceTensor& all = source.gate_up.bias[0];
    return SourceTensor{static_cast<const u8*>(all.data) + first * source_type_bytes(all.type), all.type, {all.shape[0], features}, {all.shape[1], 1}};
  };
  shard.gate.bias = {bias(rank * features)};
  shard.up.bias = {bias(whole.shape.intermediate + rank * features)};
  shard.output_bias = rank == owner;
  if (shard.output_bias) shard.down.bias = source.down.bias;
  return shard;
}

/// N18: the output bias counts once, whichever rank owns it; a foreign expert's is not added.
inline void check_output_bias_owner(Machine& machine) {
  const i64 ranks = machine.is_large() ? 4 : 2;
  Problem whole = report_problem(machine.is_large() ? Shape{512, 1024, 8, 4, 16} : small_shape(kMxfp4), kMxfp4);
  whole.shape.intermediate = machine.is_large() ? 1024 : 192;
  whole.has_bias = true;
  SyntheticLayer source = make_layer(whole);
  SyntheticInputs inputs = make_inputs(whole, 9);
  inputs.ids[0] = -1;  // a route to an expert of another rank
  std::vector<double> exact(static_cast<std::size_t>(9 * whole.shape.hidden));
  succeeds(reference_fp64(whole, source.source, dense(whole, inputs.inputs), exact));
  Problem part = whole;
  part.shape.intermediate /= ranks;
  for (const i64 owner : {i64{0}, ranks - 1, i64{-1}}) {
    std::vector<double> sum(exact.size(), 0.0);
    for (i64 rank = 0; rank < ranks; ++rank) {
      MachineLayer layer(machine, part, shard_with_biases(whole, source.source, rank, ranks, owner), routed_only(machine));
      const std::vector<u16> out = layer.run_right(inputs.inputs);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(std::bit_cast<float>(static_cast<u32>(out[i]) << 16));
    }
    double squares = 0;
    double total = 0;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      squares += (sum[i] - exact[i]) * (sum[i] - exact[i]);
      total += exact[i] * exact[i];
    }
    const double error = std::sqrt(squares / total);
    INFO("owner " << owner << ", error " << error);
    CHECK((error < 8e-3) == (owner >= 0));  // without an owner the bias is missing, and the error large
  }
}

/// N19: the whole layer with a NaN scale: NaN in exactly the outputs that use the block.
inline void check_nan_scales(Machine& machine) {
  Problem problem = report_problem(small_shape(kMxfp4), kMxfp4);
  const i64 groups = problem.format.groups(problem.shape.intermediate);
  const SyntheticInputs inputs = make_inputs(problem, 12);
  SyntheticLayer plain = make_layer(problem);
  const std::vector<u16> expected = MachineLayer(machine, problem, plain.source, routed_only(machine)).run_right(inputs.inputs);
  const i64 expert = 3;
  const i64 row = 77;
  const auto uses_expert = [&](i64 token) {
    for (i64 j = 0; j < problem.shape.topk; ++j) {
      if (inputs.ids[static_cast<std::size_t>(token * problem.shape.topk + j)] == expert) return true;
    }
    return false;
  };
  for (const bool in_down : {true, false}) {
    SyntheticLayer spoilt = make_layer(problem);
    if (in_down) bytes_of(spoilt.source.down.scales)[(expert * problem.shape.hidden + row) * groups + 1] = 255;
    if (!in_down) bytes_of(spoilt.source.gate_up.scales)[(expert * 2 * problem.shape.intermediate + 5) * problem.format.groups(problem.shape.hidden)] = 255;
    const std::vector<u16> out = MachineLayer(machine, problem, spoilt.source, routed_only(machine), true).run(inputs.inputs);
    i64 spoilt_elems = 0;
    for (i64 t = 0; t < 12; ++t) {
      for (i64 c = 0; c < problem.shape.hidden; ++c) {
        const std::size_t i = static_cast<std::size_t>(t * problem.shape.hidden + c);
        const bool spoils = uses_expert(t) && (!in_down || c == row);
        INFO("down " << in_down << ", token " << t << ", column " << c);
        REQUIRE(is_nan(problem.dtype, out[i]) == spoils);
        if (!spoils) REQUIRE(out[i] == expected[i]);
        spoilt_elems += spoils;
      }
    }
    REQUIRE(spoilt_elems > 0);
  }
}

/// N19: scale bytes through the whole kernel. Row 0 of `up` has one code of 1.0 in each block; token t has a power of two where block t
/// has it, and what makes the gate 64. So h[0] = 64 * x * 2^(byte of block t - 127), and the output of column 0 is the same.
inline void check_scale_bytes(Machine& machine, const QuantFormat& format, const std::vector<u8>& bytes) {
  const i64 blocks = static_cast<i64>(bytes.size()) + 1;  // the last one is the gate's
  Problem problem = report_problem(Shape{blocks * 32, 32, 1, 1, blocks}, format);
  SyntheticLayer source = make_layer(problem);
  SourceMatrix& fc1 = source.source.gate_up;
  std::fill_n(bytes_of(fc1.codes), 2 * 32 * blocks * 16, u8{0});
  std::fill_n(bytes_of(fc1.scales), 2 * 32 * blocks, u8{127});
  std::fill_n(bytes_of(source.source.down.codes), problem.shape.hidden * 16, u8{0});
  std::fill_n(bytes_of(source.source.down.scales), problem.shape.hidden, u8{127});
  constexpr u8 kOne = 2;  // the low nibble of a byte
  u8* const gate_row = bytes_of(fc1.codes);
  u8* const up_row = gate_row + 32 * blocks * 16;
  gate_row[(blocks - 1) * 16] = kOne;
  for (i64 b = 0; b + 1 < blocks; ++b) {
    up_row[b * 16] = kOne;
    bytes_of(fc1.scales)[32 * blocks + b] = bytes[static_cast<std::size_t>(b)];
  }
  bytes_of(source.source.down.codes)[0] = kOne;

  const i64 tokens = blocks - 1;
  SyntheticInputs inputs = make_inputs(problem, tokens);
  std::fill(inputs.x.begin(), inputs.x.end(), u16{0});
  std::fill(inputs.weights.begin(), inputs.weights.end(), 1.0f);
  for (i64 t = 0; t < tokens; ++t) {
    inputs.x[static_cast<std::size_t>(t * problem.shape.hidden + t * 32)] = bytes[static_cast<std::size_t>(t)] < 200 ? 0x3f80 : 0x3b80;  // 1 or 2^-8
    inputs.x[static_cast<std::size_t>(t * problem.shape.hidden + (blocks - 1) * 32)] = 0x4280;                                           // 64
  }
  MachineLayer layer(machine, problem, source.source, routed_only(machine));
  const std::vector<u16> out = layer.run(inputs.inputs);
  for (i64 t = 0; t < tokens; ++t) {
    const int exponent = bytes[static_cast<std::size_t>(t)] - 127 + (bytes[static_cast<std::size_t>(t)] < 200 ? 6 : -2);
    const u16 bits = out[static_cast<std::size_t>(t * problem.shape.hidden)];
    INFO("byte " << static_cast<int>(bytes[static_cast<std::size_t>(t)]) << " gives bits " << bits);
    REQUIRE(bits == static_cast<u16>((exponent + 127) << 7));
    for (i64 c = 1; c < problem.shape.hidden; ++c) REQUIRE(is_zero(out[static_cast<std::size_t>(t * problem.shape.hidden + c)]));
  }
}

/// The same for bytes 0..254, in one layer or, on a small machine, a few at a time.
inline void check_all_scale_bytes(Machine& machine, const QuantFormat& format) {
  const int at_once = machine.is_large() && format.wide_exponent ? 255 : machine.is_large() ? 120 : 15;
  for (int first = 0; first < 255; first += at_once) {
    std::vector<u8> bytes;
    for (int byte = first; byte < std::min(first + at_once, 255); ++byte) bytes.push_back(static_cast<u8>(byte));
    while (static_cast<int>(bytes.size()) < at_once) bytes.push_back(bytes.back());  // layers of one size share their kernels
    check_scale_bytes(machine, format, bytes);
  }
}

/// N24: gate and up have globals of their own, far apart.
inline void check_globals(Machine& machine) {
  const Problem problem = report_problem(machine.is_large() ? Shape{512, 256, 9, 2, 16} : small_shape(kNvfp4), kNvfp4);
  for (const GlobalConvention convention : {GlobalConvention::multiply, GlobalConvention::reciprocal}) {
    SyntheticOptions options;
    options.global_convention = convention;
    SyntheticLayer source = make_layer(problem, options);
    const auto stored = [&](float factor) { return convention == GlobalConvention::reciprocal ? 1.0f / factor : factor; };
    for (std::size_t e = 0; e < source.source.gate_global.size(); ++e) {
      source.source.gate_global[e] = stored(0.01f);
      source.source.up_global[e] = stored(0.01f * (e % 3 == 0 ? 0.1f : e % 3 == 1 ? 1.0f : 10.0f));
    }
    MachineLayer layer(machine, problem, source.source, routed_only(machine));
    layer.run_right(make_inputs(problem, 9).inputs);
  }
}

/// N25: neighbouring groups have scales that differ by factors: a kernel that steps them at another distance is far off.
inline void check_group_steps(Machine& machine, i64 group) {
  const QuantFormat format = int4_format(group);
  const Problem problem = report_problem(machine.is_large() ? Shape{1024, 512, 4, 2, 16} : Shape{256, 128, 4, 2, 16}, format);
  SyntheticLayer source = make_layer(problem);
  const auto step_scales = [&](SourceMatrix& matrix, i64 rows, i64 k) {
    const i64 groups = format.groups(k);
    auto* const scales = reinterpret_cast<u16*>(bytes_of(matrix.scales));
    for (i64 i = 0; i < problem.shape.experts * rows * groups; ++i) scales[i] = static_cast<u16>(0x3c80 + 0x80 * ((i % groups + i / groups) % 4));  // 2^-6 times 1, 2, 4, 8
  };
  step_scales(source.source.gate_up, 2 * problem.shape.intermediate, problem.shape.hidden);
  step_scales(source.source.down, problem.shape.hidden, problem.shape.intermediate);
  MachineLayer layer(machine, problem, source.source, routed_only(machine));
  layer.run_right(make_inputs(problem, 9).inputs);
}

/// N26: zero points 0..15, in every declared order, give the same bits, and those of the reference.
inline void check_zero_points(Machine& machine) {
  const Problem problem = report_problem(machine.is_large() ? Shape{1024, 512, 4, 2, 16} : Shape{256, 128, 4, 2, 16}, int4_format(32, true));
  const SyntheticInputs inputs = make_inputs(problem, 9);
  std::vector<u16> first;
  for (const ZeroOrder order : {ZeroOrder::bytes, ZeroOrder::nibbles_along_rows, ZeroOrder::awq_words, ZeroOrder::nibbles_along_groups,
                                ZeroOrder::nibbles_along_groups_high_first}) {
    SyntheticOptions options;
    options.zero_order = order;
    SyntheticLayer source = make_layer(problem, options);  // random data: every zero point of 0..15
    MachineLayer layer(machine, problem, source.source, routed_only(machine));
    const std::vector<u16> out = layer.run(inputs.inputs);
    if (first.empty()) {
      layer.require_right(inputs.inputs, out);
      first = out;
    }
    INFO("order " << static_cast<int>(order));
    REQUIRE(out == first);
  }
}

}  // namespace w4moe::test
