// The two references against a third, naive computation from the numbers a synthetic layer is made of, and against each other.
#include <cmath>

#include "runtime/reference/metrics.hpp"
#include "runtime/reference/reference.hpp"
#include "runtime/weights/float_bits.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/layers.hpp"

namespace w4moe {
namespace {

using test::int4_format;
using test::small_problem;

double code_value(const QuantFormat& format, u32 code, u32 zero) {
  if (format.is_int4()) return static_cast<double>(code) - static_cast<double>(zero);
  constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return (code & 8) != 0 ? -kMagnitudes[code & 7] : kMagnitudes[code & 7];
}

double scale_of(ScaleType type, u32 bits) {
  switch (type) {
    case ScaleType::e8m0: return std::pow(2.0, static_cast<double>(bits) - 127);
    case ScaleType::e4m3: return (bits / 8) == 0 ? (bits % 8) / 512.0 : (1 + (bits % 8) / 8.0) * std::pow(2.0, static_cast<double>(bits / 8) - 7);
    case ScaleType::bf16: return static_cast<double>(float_of_bf16(static_cast<u16>(bits)));
    case ScaleType::f16: return static_cast<double>(float_of_f16(static_cast<u16>(bits)));
  }
  return 0;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double naive_activation(const Problem& p, double gate, double up) {
  const double limit = p.params.has_limit != 0 ? static_cast<double>(p.params.limit) : HUGE_VAL;
  const double g = std::min(gate, limit);
  const double u = std::max(-limit, std::min(up, limit));
  switch (p.activation) {
    case Activation::silu: return g * sigmoid(g) * u;
    case Activation::swiglu_oai: return g * sigmoid(static_cast<double>(p.params.alpha) * g) * (u + static_cast<double>(p.params.beta));
    case Activation::geglu_tanh:
      return 0.5 * gate * (1 + std::tanh(std::sqrt(2 / M_PI) * (gate + 0.044715 * std::pow(gate, 3)))) * up;
    case Activation::geglu_erf: return gate * 0.5 * std::erfc(-gate / std::sqrt(2.0)) * up;
    case Activation::situ: return 100 * std::tanh(gate / 4) * sigmoid(gate) * std::tanh(up / 25);
    case Activation::relu2: return up > 0 ? up * up : 0;
    case Activation::silu_ungated: return up * sigmoid(up);
    case Activation::gelu_ungated: return up * 0.5 * std::erfc(-up / std::sqrt(2.0));
  }
  return 0;
}

struct Naive {
  const Problem& problem;
  SyntheticNumbers numbers;
  SyntheticOptions options;
  bool rounds_bf16 = false;  ///< h and the weighted rows are rounded to bf16, as stored

  double stored(double v) const {
    return rounds_bf16 ? static_cast<double>(float_of_bf16(bf16_of(static_cast<float>(v)))) : v;
  }
  double weight(i64 e, Projection p, i64 row, i64 k) const {
    const i64 group = problem.format.group_size == 0 ? 0 : k / problem.format.group_size;
    return code_value(problem.format, numbers.code(e, p, row, k), numbers.zero(e, p, row, group)) *
           scale_of(problem.format.scale, numbers.scale_bits(e, p, row, group)) * static_cast<double>(numbers.global(e, p));
  }
  double bias(i64 e, Projection p, i64 row) const {
    if (!problem.has_bias) return 0;
    const u32 bits = numbers.bias_bits(e, p, row);
    return static_cast<double>(options.bias_type == SourceType::f32    ? std::bit_cast<float>(bits)
                               : options.bias_type == SourceType::bf16 ? float_of_bf16(static_cast<u16>(bits))
                                                                       : float_of_f16(static_cast<u16>(bits)));
  }
  std::vector<double> token(const u16* x, const std::vector<i64>& ids, const std::vector<double>& weights) const {
    const i64 hidden = problem.shape.hidden;
    const i64 features = problem.shape.intermediate;
    std::vector<double> out(static_cast<std::size_t>(hidden));
    for (std::size_t j = 0; j < ids.size(); ++j) {
      const i64 e = ids[j];
      if (e < 0 || e >= problem.shape.experts) continue;
      const double in = problem.weight_on_input ? weights[j] : 1;
      std::vector<double> h;
      for (i64 f = 0; f < features; ++f) {
        double gate = 0;
        double up = 0;
        for (i64 k = 0; k < hidden; ++k) {
          const double value = in * static_cast<double>(float_of(problem.dtype, x[k]));
          if (is_gated(problem.activation)) gate += value * weight(e, Projection::gate, f, k);
          up += value * weight(e, Projection::up, f, k);
        }
        if (is_gated(problem.activation)) gate += bias(e, Projection::gate, f);
        h.push_back(stored(naive_activation(problem, gate, up + bias(e, Projection::up, f))));
      }
      for (i64 n = 0; n < hidden; ++n) {
        double sum = bias(e, Projection::down, n);
        for (i64 f = 0; f < features; ++f) sum += h[static_cast<std::size_t>(f)] * weight(e, Projection::down, n, f);
        out[static_cast<std::size_t>(n)] += stored((problem.weight_on_input ? 1 : weights[j]) * sum);
      }
    }
    return out;
  }
};

/// Largest error of reference_fp64 against the naive computation, relative to the largest output.
double fp64_error(const Problem& problem, const SyntheticOptions& options, const std::vector<i64>& ids_of_token_0 = {}) {
  const SyntheticLayer layer = make_layer(problem, options);
  SyntheticInputs in = make_inputs(problem, 3, options);
  for (std::size_t j = 0; j < ids_of_token_0.size(); ++j) in.ids[j] = static_cast<i32>(ids_of_token_0[j]);
  std::vector<double> out(static_cast<std::size_t>(3 * problem.shape.hidden));
  const Status s = reference_fp64(problem, layer.source, in.inputs, out);
  INFO((s ? std::string{} : s.error().message));
  REQUIRE(s);
  const Naive naive{problem, SyntheticNumbers(problem, options), options, false};
  double worst = 0;
  double largest = 0;
  for (i64 token = 0; token < 3; ++token) {
    std::vector<i64> ids;
    std::vector<double> weights;
    for (i64 j = 0; j < problem.shape.topk; ++j) {
      ids.push_back(in.ids[static_cast<std::size_t>(token * problem.shape.topk + j)]);
      weights.push_back(static_cast<double>(in.weights[static_cast<std::size_t>(token * problem.shape.topk + j)]));
    }
    const std::vector<double> expected = naive.token(&in.x[static_cast<std::size_t>(token * problem.shape.hidden)], ids, weights);
    for (i64 n = 0; n < problem.shape.hidden; ++n) {
      const double value = expected[static_cast<std::size_t>(n)];
      worst = std::max(worst, std::fabs(out[static_cast<std::size_t>(token * problem.shape.hidden + n)] - value));
      largest = std::max(largest, std::fabs(value));
    }
  }
  CHECK(largest > 0);
  return worst / largest;
}

constexpr double kFp64Noise = 1e-12;

TEST_CASE("fp64 reference: every format against the naive computation") {
  for (const QuantFormat& format : {kMxfp4, kMxfp4Wide, kNvfp4, int4_format(32), int4_format(32, true), int4_format(kWholeRow, true),
                                    int4_format(32, true, ScaleType::f16)}) {
    INFO(to_string(format));
    CHECK(fp64_error(small_problem(64, 32, 3, format), {}) < kFp64Noise);
    CHECK(fp64_error(small_problem(96, 64, 2, format), {}) < kFp64Noise);
  }
  CHECK(fp64_error(small_problem(128, 128, 2, int4_format(128, true)), {}) < kFp64Noise);
  CHECK(fp64_error(small_problem(64, 24, 2, kMxfp4), {}) < kFp64Noise);  // compact tail
}

TEST_CASE("fp64 reference: every checkpoint layout of the same numbers gives the same bits") {
  for (const QuantFormat& format : {kNvfp4, int4_format(32, true)}) {
    Problem problem = small_problem(96, 64, 3, format);
    problem.has_bias = true;
    const SyntheticInputs in = make_inputs(problem, 3);
    const auto output = [&](const SyntheticOptions& options) {
      std::vector<double> out(3 * 96);
      const Status s = reference_fp64(problem, make_layer(problem, options).source, in.inputs, out);
      INFO((s ? std::string{} : s.error().message));
      REQUIRE(s);
      return out;
    };
    SyntheticOptions plain;
    plain.global_convention = GlobalConvention::none;
    const std::vector<double> expected = output(plain);
    for (const GateUpOrder order : {GateUpOrder::separate, GateUpOrder::up_first, GateUpOrder::interleaved}) {
      SyntheticOptions options = plain;
      options.gate_up_order = order;
      CHECK(output(options) == expected);
      options.per_expert_tensors = true;
      options.scale_layout = format.is_nvfp4() ? ScaleLayout::swizzled_128x4 : ScaleLayout::transposed;
      CHECK(output(options) == expected);
      options.code_words = true;
      CHECK(output(options) == expected);
    }
    for (const CodeOrder order : {CodeOrder::high_nibble_first, CodeOrder::awq_words}) {
      SyntheticOptions options = plain;
      options.code_order = order;
      CHECK(output(options) == expected);
    }
    if (!format.is_int4()) continue;
    SyntheticOptions options = plain;
    options.code_sign = CodeSign::twos_complement;
    CHECK(output(options) == expected);
    for (const ZeroOrder order : {ZeroOrder::nibbles_along_rows, ZeroOrder::awq_words, ZeroOrder::nibbles_along_groups,
                                  ZeroOrder::nibbles_along_groups_high_first}) {
      options = plain;
      options.zero_order = order;
      CHECK(output(options) == expected);
    }
  }
}

TEST_CASE("fp64 reference: every activation, bias type and place of the router weight") {
  for (i32 a = 0; a < kActivationCount; ++a) {
    for (const bool bias : {false, true}) {
      for (const bool on_input : {false, true}) {
        Problem problem = small_problem(32, 32, 2, kNvfp4, static_cast<Activation>(a));
        problem.has_bias = bias;
        problem.weight_on_input = on_input;
        INFO(to_string(problem.activation) << bias << on_input);
        for (const SourceType type : {SourceType::bf16, SourceType::f16, SourceType::f32}) {
          SyntheticOptions options;
          options.bias_type = type;
          CHECK(fp64_error(problem, options) < kFp64Noise);
          if (!bias) break;
        }
      }
    }
  }
}

TEST_CASE("N16: flavours of the gated activation each equal their own reference and differ from their neighbours") {
  std::vector<std::vector<double>> seen;
  for (const GateUpOrder order : {GateUpOrder::interleaved, GateUpOrder::gate_first, GateUpOrder::up_first}) {
    for (const float alpha : {1.0f, 1.702f}) {
      for (const float limit : {0.0f, 0.5f, 1.0f}) {
        for (const float beta : {0.0f, 1.0f}) {
          for (const bool bias : {false, true}) {
            Problem problem = small_problem(32, 32, 2, kMxfp4, Activation::swiglu_oai);
            problem.params = ActivationParams{alpha, beta, limit, limit > 0 ? 1u : 0u};
            problem.has_bias = bias;
            SyntheticOptions options;
            options.mx_first_byte = options.mx_last_byte = 124;
            options.gate_up_order = order;
            CHECK(fp64_error(problem, options) < kFp64Noise);
            if (order != GateUpOrder::gate_first) continue;
            const SyntheticLayer layer = make_layer(problem, options);
            const SyntheticInputs in = make_inputs(problem, 2, options);
            std::vector<double> out(64);
            REQUIRE(reference_fp64(problem, layer.source, in.inputs, out));
            for (const std::vector<double>& other : seen) CHECK(other != out);
            seen.push_back(out);
          }
        }
      }
    }
  }
}

TEST_CASE("N09 N11: foreign ids contribute nothing, duplicates count each time") {
  Problem problem = small_problem(32, 32, 4, kMxfp4);
  problem.shape.topk = 4;
  problem.has_bias = true;
  CHECK(fp64_error(problem, {}, {-1, 4, 2147483647, -2147483647 - 1}) < kFp64Noise);
  CHECK(fp64_error(problem, {}, {2, 2, 2, 1}) < kFp64Noise);

  const SyntheticLayer layer = make_layer(problem);
  SyntheticInputs in = make_inputs(problem, 2);
  std::fill(in.ids.begin(), in.ids.end(), -1);
  std::vector<double> out(64, 1.0);
  std::vector<u16> mirror(64, 1);
  REQUIRE(reference_fp64(problem, layer.source, in.inputs, out));
  REQUIRE(reference_mirror(problem, layer.source, in.inputs, mirror));
  CHECK(out == std::vector<double>(64, 0.0));
  CHECK(mirror == std::vector<u16>(64, 0));
}

TEST_CASE("64-bit ids that wrap to valid ones in 32 bits are foreign; bf16 router weights are read as such") {
  const Problem problem = small_problem(32, 32, 4, kMxfp4);
  const SyntheticLayer layer = make_layer(problem);
  SyntheticInputs in = make_inputs(problem, 2, {}, IdType::i64, DType::bf16);
  in.ids64 = {(i64{1} << 32) + 1, 2, 3, (i64{-1} << 32)};
  std::vector<double> out(64);
  REQUIRE(reference_fp64(problem, layer.source, in.inputs, out));

  SyntheticInputs same = make_inputs(problem, 2);
  same.ids = {-1, 2, 3, -1};
  for (std::size_t i = 0; i < same.weights.size(); ++i) same.weights[i] = float_of_bf16(in.weights_bf16[i]);
  std::vector<double> expected(64);
  REQUIRE(reference_fp64(problem, layer.source, same.inputs, expected));
  CHECK(out == expected);
}

TEST_CASE("N18: the output bias is added by the rank that owns it, and never for a foreign expert") {
  Problem problem = small_problem(32, 32, 2, kMxfp4);
  problem.has_bias = true;
  SyntheticLayer layer = make_layer(problem);
  const SyntheticInputs in = make_inputs(problem, 1);
  std::vector<double> with(32);
  std::vector<double> without(32);
  REQUIRE(reference_fp64(problem, layer.source, in.inputs, with));
  layer.source.output_bias = false;
  CHECK_FALSE(reference_fp64(problem, layer.source, in.inputs, without));  // a bias that would be ignored is an error
  layer.source.down.bias.clear();
  REQUIRE(reference_fp64(problem, layer.source, in.inputs, without));
  const SyntheticNumbers numbers(problem, {});
  for (i64 n = 0; n < 32; ++n) {
    double bias = 0;
    for (std::size_t j = 0; j < 2; ++j) {
      bias += static_cast<double>(in.weights[j]) *
              static_cast<double>(float_of_bf16(static_cast<u16>(numbers.bias_bits(in.ids[j], Projection::down, n))));
    }
    CHECK(with[static_cast<std::size_t>(n)] - without[static_cast<std::size_t>(n)] == Approx(bias).margin(1e-12));
  }
}

TEST_CASE("listed tokens and threads change nothing but the rows computed") {
  const Problem problem = small_problem(64, 32, 4, kNvfp4);
  const SyntheticLayer layer = make_layer(problem);
  const SyntheticInputs in = make_inputs(problem, 9);
  std::vector<double> all(9 * 64);
  std::vector<u16> all_mirror(9 * 64);
  REQUIRE(reference_fp64(problem, layer.source, in.inputs, all));
  REQUIRE(reference_mirror(problem, layer.source, in.inputs, all_mirror));
  ReferenceOptions options;
  options.tokens = {8, 0, 8};
  options.threads = 3;
  std::vector<double> some(3 * 64);
  std::vector<u16> some_mirror(3 * 64);
  REQUIRE(reference_fp64(problem, layer.source, in.inputs, some, options));
  REQUIRE(reference_mirror(problem, layer.source, in.inputs, some_mirror, options));
  for (std::size_t i = 0; i < 64; ++i) {
    CHECK((some[i] == all[8 * 64 + i] && some[64 + i] == all[i] && some[128 + i] == all[8 * 64 + i]));
    CHECK((some_mirror[i] == all_mirror[8 * 64 + i] && some_mirror[64 + i] == all_mirror[i]));
  }
  options.tokens = {9};
  CHECK_FALSE(reference_fp64(problem, layer.source, in.inputs, std::span(some).first(64), options));
}

TEST_CASE("mirror: inside the contract for every format and both activation types") {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const QuantFormat& format : {kMxfp4, kMxfp4Wide, kNvfp4, int4_format(32), int4_format(128, true)}) {
      Problem problem = small_problem(512, 256, 2, format);
      problem.dtype = dtype;
      const SyntheticLayer layer = make_layer(problem);
      const SyntheticInputs in = make_inputs(problem, 4);
      std::vector<double> exact(4 * 512);
      std::vector<u16> mirror(4 * 512);
      REQUIRE(reference_fp64(problem, layer.source, in.inputs, exact));
      REQUIRE(reference_mirror(problem, layer.source, in.inputs, mirror));
      const ErrorReport report = compare_outputs(dtype, mirror, exact, 512);
      const ContractVerdict verdict = check_contract(problem, report, report);
      INFO(to_string(format) << ": " << verdict.reason);
      CHECK(verdict.holds);
      CHECK(report.relative_rmse > contract_relative_rmse(dtype) / 50);  // it does round
    }
  }
}

TEST_CASE("mirror: small integers come out as exact sums with the stated roundings, bit for bit") {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const QuantFormat& format : {kMxfp4, kMxfp4Wide, kNvfp4, int4_format(32), int4_format(kWholeRow, true)}) {
      Problem problem = small_problem(64, 32, 2, format, Activation::relu2);
      problem.dtype = dtype;
      problem.has_bias = true;
      SyntheticOptions options;
      options.data = SyntheticData::small_integers;
      const SyntheticLayer layer = make_layer(problem, options);
      const SyntheticInputs in = make_inputs(problem, 6, options);
      std::vector<u16> mirror(6 * 64);
      REQUIRE(reference_mirror(problem, layer.source, in.inputs, mirror));
      // fp16: h has few enough bits to be stored exactly once it is lifted, and route rows are fp32.
      const Naive naive{problem, SyntheticNumbers(problem, options), options, dtype == DType::bf16};
      i64 different = 0;
      i64 nonzero = 0;
      for (std::size_t token = 0; token < 6; ++token) {
        const std::vector<double> expected = naive.token(&in.x[token * 64], {in.ids[2 * token], in.ids[2 * token + 1]},
                                                         {static_cast<double>(in.weights[2 * token]), static_cast<double>(in.weights[2 * token + 1])});
        for (std::size_t n = 0; n < 64; ++n) {
          different += ulp_distance(dtype, mirror[token * 64 + n], bits_of(dtype, static_cast<float>(expected[n]))) != 0;
          nonzero += expected[n] != 0;
        }
      }
      INFO(to_string(format));
      CHECK(different == 0);
      CHECK(nonzero > 200);
    }
  }
}

TEST_CASE("M3: fp16 intermediates that overflow fp16 still give the right result") {
  // h about 1e6, brought back by small FC2 scales.
  Problem problem = small_problem(64, 32, 2, kMxfp4, Activation::relu2);
  problem.dtype = DType::f16;
  SyntheticOptions options;
  options.mx_first_byte = options.mx_last_byte = 131;
  SyntheticLayer layer = make_layer(problem, options);
  u8* const down_scales = const_cast<u8*>(static_cast<const u8*>(layer.source.down.scales[0].data));
  std::fill_n(down_scales, 2 * 64, u8{100});
  const SyntheticInputs in = make_inputs(problem, 4);
  std::vector<double> exact(4 * 64);
  std::vector<u16> mirror(4 * 64);
  REQUIRE(reference_fp64(problem, layer.source, in.inputs, exact));
  REQUIRE(reference_mirror(problem, layer.source, in.inputs, mirror));
  const ErrorReport report = compare_outputs(DType::f16, mirror, exact, 64);
  CHECK(report.kind_mismatches == 0);
  CHECK(report.relative_rmse < 6e-4);
}

}  // namespace
}  // namespace w4moe
