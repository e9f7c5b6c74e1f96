// The reference that rounds as the kernels do. What it shares with them is the list of roundings, not the code.
#include <algorithm>
#include <cmath>

#include "contract/variant.h"
#include "runtime/reference/activations.hpp"
#include "runtime/reference/reference.hpp"
#include "runtime/reference/routes.hpp"
#include "runtime/reference/source_decoder.hpp"
#include "runtime/weights/float_bits.hpp"
#include "runtime/weights/operand.hpp"
#include "runtime/weights/parallel.hpp"
#include "runtime/weights/scan.hpp"

namespace w4moe {
namespace {

/// K that share one multiplication of the fp32 sum, where scales go on sums.
constexpr i64 kPartialK = 32;

/// One projection of one expert: decodes rows and multiplies them with blocks of routes.
class MirrorMatrix {
 public:
  MirrorMatrix(const Problem& problem, const SourceWeights& source, const SourceDecoder& decoder, i64 expert, Projection projection)
      : problem_(problem), decoder_(decoder), expert_(expert), projection_(projection), k_(decoder.columns(projection)),
        scales_sums_(scales_on_accumulator(problem.format, problem.dtype)) {
    factor_ = static_cast<float>(decoder.global(expert, projection));
    if (problem.format.is_mxfp4() && !problem.format.wide_exponent) {
      // Weights are kept relative to the window of exponents; the global factor puts the distance back.
      const ScanResult scan = scan_projection(problem, source_view(problem, source, projection, expert), 1);
      const int shift = static_cast<int>(mx_window(scan).base) - static_cast<int>(kMxDefaultBase);
      factor_ = std::ldexp(factor_, shift);
      unshift_ = std::ldexp(1.0, -shift);
    }
  }

  float factor() const { return factor_; }
  float bias(i64 row) const { return static_cast<float>(decoder_.bias(expert_, projection_, row)); }

  struct Row {
    std::vector<float> values;
    std::vector<double> scales;
    std::vector<float> weights;
  };
  Row new_row() const {
    const auto k = static_cast<std::size_t>(k_);
    return Row{std::vector<float>(k), std::vector<double>(k), std::vector<float>(k)};
  }

  void read(i64 row, Row& into) const {
    decoder_.row(expert_, projection_, row, into.values.data(), into.scales.data());
    if (scales_sums_) return;
    for (i64 k = 0; k < k_; ++k) {
      const auto i = static_cast<std::size_t>(k);
      const double scale = into.scales[static_cast<std::size_t>(problem_.format.group_of(k))];
      into.weights[i] = into.values[i] == 0.0f && !std::isnan(scale)
                            ? into.values[i]
                            : static_cast<float>(static_cast<double>(into.values[i]) * scale * unshift_);
    }
  }

  /// sums[r] = row . rows[.][r]
  void multiply(const Row& row, const float* rows, float (&sums)[kRouteBlock]) const {
    std::fill(std::begin(sums), std::end(sums), 0.0f);
    if (!scales_sums_) return accumulate(row.weights.data(), rows, k_, sums);
    for (i64 first = 0; first < k_; first += kPartialK) {
      float partial[kRouteBlock] = {};
      accumulate(row.values.data() + first, rows + first * kRouteBlock, std::min(kPartialK, k_ - first), partial);
      const auto scale = static_cast<float>(row.scales[static_cast<std::size_t>(problem_.format.group_of(first))] * unshift_);
      for (i64 r = 0; r < kRouteBlock; ++r) sums[r] += partial[r] == 0.0f && !std::isnan(scale) ? 0.0f : partial[r] * scale;
    }
  }

 private:
  const Problem& problem_;
  const SourceDecoder& decoder_;
  i64 expert_;
  Projection projection_;
  i64 k_;
  bool scales_sums_;
  double unshift_ = 1.0;  ///< power of two that the narrow MXFP4 layout leaves out of its weights
  float factor_ = 1.0f;
};

class MirrorLayer {
 public:
  MirrorLayer(const Problem& problem, const SourceWeights& source, const SourceDecoder& decoder, const ReferenceOptions& options)
      : problem_(problem), source_(source), decoder_(decoder), threads_(options.threads), rounds_rows_(options.rounds_route_rows) {}

  /// Unrounded fp32 h of all routes of an expert.
  void fc1(i64 expert, const std::vector<Route>& routes, const RouteRows<float>& x, RouteRows<float>& h) const {
    const bool gated = is_gated(problem_.activation);
    const MirrorMatrix up(problem_, source_, decoder_, expert, Projection::up);
    const MirrorMatrix gate(problem_, source_, decoder_, expert, gated ? Projection::gate : Projection::up);
    const auto count = static_cast<i64>(routes.size());
    parallel_for(threads_, problem_.shape.intermediate, [&](i64 begin, i64 end) {
      MirrorMatrix::Row up_row = up.new_row();
      MirrorMatrix::Row gate_row = gate.new_row();
      for (i64 feature = begin; feature < end; ++feature) {
        gate.read(feature, gate_row);
        if (gated) up.read(feature, up_row);
        for (i64 first = 0; first < count; first += kRouteBlock) {
          float gate_sums[kRouteBlock];
          float up_sums[kRouteBlock] = {};
          gate.multiply(gate_row, x.block(first), gate_sums);
          if (gated) up.multiply(up_row, x.block(first), up_sums);
          for (i64 r = 0; r < std::min(kRouteBlock, count - first); ++r) {
            const float weight = problem_.weight_on_input ? routes[static_cast<std::size_t>(first + r)].weight : 1.0f;
            const float g = gate_sums[r] * gate.factor() * weight + gate.bias(feature);
            const float u = gated ? up_sums[r] * up.factor() * weight + up.bias(feature) : 0.0f;
            h.at(first + r, feature) = activate_reference(problem_.activation, problem_.params, g, u);
          }
        }
      }
    });
  }

  /// Rounds a route's h as it is stored (bf16), or as FC2 reads it (fp16, lifted by the power of two it returns the exponent of).
  int round_h(RouteRows<float>& h, i64 route) const {
    const i64 count = problem_.shape.intermediate;
    if (problem_.dtype == DType::bf16) {
      for (i64 i = 0; i < count; ++i) h.at(route, i) = float_of_bf16(bf16_of(h.at(route, i)));
      return 0;
    }
    float largest = 0.0f;
    bool finite = true;
    for (i64 i = 0; i < count; ++i) {
      finite = finite && std::isfinite(h.at(route, i));
      largest = std::max(largest, std::fabs(h.at(route, i)));
    }
    const int shift = !finite || largest == 0.0f ? 0 : std::min(14 - std::max(std::ilogb(largest), -127), 126);
    for (i64 i = 0; i < count; ++i) h.at(route, i) = float_of_f16(f16_of(std::ldexp(h.at(route, i), shift)));
    return shift;
  }

  /// Weighted FC2 rows of an expert's routes as they are stored: [computed tokens * topk][H].
  void fc2(i64 expert, const std::vector<Route>& routes, const RouteRows<float>& h, const std::vector<int>& shifts,
           std::vector<float>& route_rows) const {
    const MirrorMatrix down(problem_, source_, decoder_, expert, Projection::down);
    const auto count = static_cast<i64>(routes.size());
    const i64 hidden = problem_.shape.hidden;
    parallel_for(threads_, hidden, [&](i64 begin, i64 end) {
      MirrorMatrix::Row row = down.new_row();
      for (i64 column = begin; column < end; ++column) {
        down.read(column, row);
        const float bias = down.bias(column);
        for (i64 first = 0; first < count; first += kRouteBlock) {
          float sums[kRouteBlock];
          down.multiply(row, h.block(first), sums);
          for (i64 r = 0; r < std::min(kRouteBlock, count - first); ++r) {
            const auto i = static_cast<std::size_t>(first + r);
            const float weight = problem_.weight_on_input ? 1.0f : routes[i].weight;
            const float value = (std::ldexp(sums[r], -shifts[i]) * down.factor() + bias) * weight;
            const i64 pair = routes[i].out_row * problem_.shape.topk + routes[i].j;
            route_rows[static_cast<std::size_t>(pair * hidden + column)] =
                problem_.dtype == DType::bf16 && rounds_rows_ ? float_of_bf16(bf16_of(value)) : value;
          }
        }
      }
    });
  }

 private:
  const Problem& problem_;
  const SourceWeights& source_;
  const SourceDecoder& decoder_;
  int threads_;
  bool rounds_rows_;
};

}  // namespace

Status reference_mirror(const Problem& problem, const SourceWeights& source, const MoeInputs& inputs, std::span<u16> out,
                        const ReferenceOptions& options) {
  if (Status s = check_reference(problem, source, inputs, out.size(), options); !s) return s;
  const SourceDecoder decoder(problem, source);
  const MirrorLayer layer(problem, source, decoder, options);
  const std::vector<i64> tokens = computed_tokens(inputs, options);
  const i64 hidden = problem.shape.hidden;
  const i64 topk = problem.shape.topk;
  std::vector<float> route_rows(static_cast<std::size_t>(static_cast<i64>(tokens.size()) * topk * hidden));
  const std::vector<std::vector<Route>> by_expert = routes_by_expert(problem, inputs, tokens);
  for (i64 expert = 0; expert < problem.shape.experts; ++expert) {
    const std::vector<Route>& routes = by_expert[static_cast<std::size_t>(expert)];
    if (routes.empty()) continue;
    const auto count = static_cast<i64>(routes.size());
    RouteRows<float> x(count, hidden);
    RouteRows<float> h(count, problem.shape.intermediate);
    for (i64 r = 0; r < count; ++r) {
      const i64 token = routes[static_cast<std::size_t>(r)].token;
      for (i64 k = 0; k < hidden; ++k) x.at(r, k) = token_value(problem, inputs, token, k);
    }
    layer.fc1(expert, routes, x, h);
    std::vector<int> shifts;
    for (i64 r = 0; r < count; ++r) shifts.push_back(layer.round_h(h, r));
    layer.fc2(expert, routes, h, shifts, route_rows);
  }
  // Routes that contribute nothing left zeros behind, which change no sum.
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    for (i64 column = 0; column < hidden; ++column) {
      float sum = 0.0f;
      for (i64 j = 0; j < topk; ++j) sum += route_rows[static_cast<std::size_t>((static_cast<i64>(row) * topk + j) * hidden + column)];
      out[static_cast<std::size_t>(static_cast<i64>(row) * hidden + column)] = bits_of(problem.dtype, sum);
    }
  }
  return {};
}

}  // namespace w4moe
