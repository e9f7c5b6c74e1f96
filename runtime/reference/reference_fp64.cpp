// The fp64 reference: every weight row is decoded once per expert and multiplied with all routes of that expert.
#include <algorithm>

#include "runtime/reference/activations.hpp"
#include "runtime/reference/reference.hpp"
#include "runtime/reference/routes.hpp"
#include "runtime/reference/source_decoder.hpp"
#include "runtime/weights/parallel.hpp"

namespace w4moe {
namespace {

/// One thread's buffers for a decoded row.
class DecodedRow {
 public:
  DecodedRow(const Problem& problem, i64 k)
      : group_size_(problem.format.group_size == kWholeRow ? k : problem.format.group_size),
        codes_(static_cast<std::size_t>(k)),
        scales_(static_cast<std::size_t>(k)),
        weights_(static_cast<std::size_t>(k)) {}

  const std::vector<double>& read(const SourceDecoder& decoder, i64 expert, Projection projection, i64 row) {
    decoder.row(expert, projection, row, codes_.data(), scales_.data());
    for (std::size_t first = 0, group = 0; first < weights_.size(); first += static_cast<std::size_t>(group_size_), ++group) {
      const std::size_t end = std::min(weights_.size(), first + static_cast<std::size_t>(group_size_));
      for (std::size_t k = first; k < end; ++k) weights_[k] = static_cast<double>(codes_[k]) * scales_[group];
    }
    return weights_;
  }

 private:
  i64 group_size_;
  std::vector<float> codes_;
  std::vector<double> scales_;
  std::vector<double> weights_;
};

struct Fp64Layer {
  const Problem& problem;
  const SourceDecoder& decoder;
  int threads;

  /// h of all routes of an expert.
  void fc1(i64 expert, const std::vector<Route>& routes, const RouteRows<double>& x, RouteRows<double>& h) const {
    const bool gated = is_gated(problem.activation);
    const i64 k = problem.shape.hidden;
    const auto count = static_cast<i64>(routes.size());
    parallel_for(threads, problem.shape.intermediate, [&](i64 begin, i64 end) {
      DecodedRow gate_row(problem, k);
      DecodedRow up_row(problem, k);
      for (i64 feature = begin; feature < end; ++feature) {
        const std::vector<double>& up = up_row.read(decoder, expert, Projection::up, feature);
        const std::vector<double>* const gate = gated ? &gate_row.read(decoder, expert, Projection::gate, feature) : nullptr;
        for (i64 first = 0; first < count; first += kRouteBlock) {
          double up_sums[kRouteBlock] = {};
          double gate_sums[kRouteBlock] = {};
          accumulate(up.data(), x.block(first), k, up_sums);
          if (gated) accumulate(gate->data(), x.block(first), k, gate_sums);
          for (i64 r = 0; r < std::min(kRouteBlock, count - first); ++r) {
            const double factor = problem.weight_on_input ? static_cast<double>(routes[static_cast<std::size_t>(first + r)].weight) : 1.0;
            const auto finish = [&](Projection projection, double sum) {
              return sum * decoder.global(expert, projection) * factor + decoder.bias(expert, projection, feature);
            };
            const double u = finish(Projection::up, up_sums[r]);
            h.at(first + r, feature) = gated ? activate_reference(problem.activation, problem.params, finish(Projection::gate, gate_sums[r]), u)
                                             : activate_reference(problem.activation, problem.params, u, 0.0);
          }
        }
      }
    });
  }

  /// Adds the weighted FC2 rows of an expert to the outputs.
  void fc2(i64 expert, const std::vector<Route>& routes, const RouteRows<double>& h, std::span<double> out) const {
    const i64 k = problem.shape.intermediate;
    const auto count = static_cast<i64>(routes.size());
    const double global = decoder.global(expert, Projection::down);
    parallel_for(threads, problem.shape.hidden, [&](i64 begin, i64 end) {
      DecodedRow down_row(problem, k);
      for (i64 column = begin; column < end; ++column) {
        const std::vector<double>& down = down_row.read(decoder, expert, Projection::down, column);
        const double bias = decoder.bias(expert, Projection::down, column);
        for (i64 first = 0; first < count; first += kRouteBlock) {
          double sums[kRouteBlock] = {};
          accumulate(down.data(), h.block(first), k, sums);
          for (i64 r = 0; r < std::min(kRouteBlock, count - first); ++r) {
            const Route& route = routes[static_cast<std::size_t>(first + r)];
            const double weight = problem.weight_on_input ? 1.0 : static_cast<double>(route.weight);
            out[static_cast<std::size_t>(route.out_row * problem.shape.hidden + column)] += weight * (sums[r] * global + bias);
          }
        }
      }
    });
  }
};

}  // namespace

Status reference_fp64(const Problem& problem, const SourceWeights& source, const MoeInputs& inputs, std::span<double> out,
                      const ReferenceOptions& options) {
  if (Status s = check_reference(problem, source, inputs, out.size(), options); !s) return s;
  std::fill(out.begin(), out.end(), 0.0);
  const SourceDecoder decoder(problem, source);
  const Fp64Layer layer{problem, decoder, options.threads};
  const std::vector<std::vector<Route>> by_expert = routes_by_expert(problem, inputs, computed_tokens(inputs, options));
  for (i64 expert = 0; expert < problem.shape.experts; ++expert) {
    const std::vector<Route>& routes = by_expert[static_cast<std::size_t>(expert)];
    if (routes.empty()) continue;
    const auto count = static_cast<i64>(routes.size());
    RouteRows<double> x(count, problem.shape.hidden);
    RouteRows<double> h(count, problem.shape.intermediate);
    for (i64 r = 0; r < count; ++r) {
      const i64 token = routes[static_cast<std::size_t>(r)].token;
      for (i64 k = 0; k < problem.shape.hidden; ++k) x.at(r, k) = static_cast<double>(token_value(problem, inputs, token, k));
    }
    layer.fc1(expert, routes, x, h);
    layer.fc2(expert, routes, h, out);
  }
  return {};
}

}  // namespace w4moe
